package etcdlock

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/holdfastlock/holdfast/internal/certs"
)

// handshakes are the TLS of connections, each with the certificates that the files
// have when it is made: they are replaced before they expire, and the client of etcd
// makes connections for as long as it lives.
type handshakes struct {
	source *certs.Source
	server string // the name that it has to prove instead of its address; "": none
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return h.now().ClientHandshake(ctx, authority, raw)
}

// ServerHandshake implements credentials.TransportCredentials: a client has none.
func (h *handshakes) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for clients")
}

// Info implements credentials.TransportCredentials.
func (h *handshakes) Info() credentials.ProtocolInfo { return h.now().Info() }

// Clone implements credentials.TransportCredentials.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.source, h.server}
}

// OverrideServerName implements credentials.TransportCredentials.
func (h *handshakes) OverrideServerName(name string) error {
	h.server = name
	return nil
}

func (h *handshakes) now() credentials.TransportCredentials {
	config := h.source.Config()
	config.ServerName = h.server
	return credentials.NewTLS(config)
}
