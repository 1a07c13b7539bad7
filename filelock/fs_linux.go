package filelock

import (
	"fmt"
	"syscall"
)

// networked are the file systems on which flock or the page cache may end at
// the host's edge, by their numbers in statfs(2) and linux/magic.h.
var networked = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x564c:     "NCP",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x00c36400: "Ceph",
	0x01021997: "9p, a directory of another machine,",
	0x65735546: "FUSE, which may be sshfs, virtiofs or another file system of the network,",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0x786f4256: "a folder shared by VirtualBox",
	0xbacbacbc: "a folder shared by VMware",
	0xaad7aaea: "PanFS",
	0x013111a8: "IBRIX",
}

// networkFS says on which file system dir is if locks must not be kept there,
// and returns "" if they may.
func networkFS(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Sprintf("is on a file system that cannot be told (%v)", err)
	}
	return networkType(uint32(st.Type))
}

func networkType(number uint32) string {
	if name, ok := networked[number]; ok {
		return "is on " + name + " (file system 0x" + fmt.Sprintf("%x", number) + ")"
	}
	return ""
}
