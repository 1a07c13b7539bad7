//go:build soak

package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// TestGreeter: connections come when their handshake is over, and one that stays silent, or speaks
// nonsense, delays no other.
func TestGreeter(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	g := newGreeter(l, 5*time.Second)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	dial() // silent
	nonsense := dial()
	if _, err := nonsense.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	client := tls.Client(dial(), &tls.Config{InsecureSkipVerify: true})
	greeted := make(chan error, 1)
	go func() { greeted <- client.Handshake() }()
	conn, err := g.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-greeted; err != nil {
		t.Fatal(err)
	}
	if !conn.(*tls.Conn).ConnectionState().HandshakeComplete {
		t.Error("the handshake is not over")
	}
	if conn.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("%v was accepted, not %v", conn.RemoteAddr(), client.LocalAddr())
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestFirstCallsTogether: several calls may come at once on a connection that has just been made, before its
// client has heard of the member's settings.
func TestFirstCallsTogether(t *testing.T) {
	m := start(t)
	for range 20 {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		c := cellv1connect.NewCellClient(&http.Client{Transport: transport}, "http://"+m.Addr())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := c.Status(t.Context(), &cellv1.StatusRequest{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		transport.CloseIdleConnections()
	}
}
