package storeurl

import (
	"fmt"
	"net"
	"strings"
)

// MaxHosts is how many hosts a store URL may have.
const MaxHosts = 64

// Hosts reads the hosts of a store URL, separated by commas, and returns each as host:port. A host
// without a port has the one given; no host at all means localhost. Its errors do not repeat the text.
func Hosts(text, port string) ([]string, error) {
	if text == "" {
		text = "localhost"
	}
	list := strings.Split(text, ",")
	if len(list) > MaxHosts {
		return nil, fmt.Errorf("store URL has %d hosts: at most %d are allowed", len(list), MaxHosts)
	}
	for i, host := range list {
		name, its, err := net.SplitHostPort(host)
		if err != nil {
			name = strings.Trim(host, "[]")
		}
		if its == "" {
			its = port
		}
		if name == "" {
			return nil, fmt.Errorf("host %d of the store URL is empty", i+1)
		}
		list[i] = net.JoinHostPort(name, its)
	}
	return list, nil
}
