package bench

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialTLS gives a descriptor for what is inside a TLS session over c. Two
// goroutines carry the bytes between it and the session: the worker knows
// nothing of TLS, and the generator needs more CPU than the server.
func dialTLS(c net.Conn, timeout time.Duration) (fd int, err error) {
	// The certificate of a server that is measured is often made for that.
	session := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	_ = c.SetDeadline(time.Now().Add(timeout)) // an error shows in the handshake
	if err := session.Handshake(); err != nil {
		c.Close()
		return 0, fmt.Errorf("bench: TLS: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		session.Close()
		return 0, fmt.Errorf("bench: pair of sockets: %w", err)
	}
	file := os.NewFile(uintptr(pair[1]), "pair")
	inside, err := net.FileConn(file)
	file.Close()
	if err != nil {
		unix.Close(pair[0])
		session.Close()
		return 0, fmt.Errorf("bench: pair of sockets: %w", err)
	}
	carry := func(to io.WriteCloser, from io.Reader) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
		to.Close() // which ends the other way, too
	}
	go carry(session, inside)
	go carry(inside, session)
	return pair[0], nil
}
