package bench

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// conn is one connection: what it has to send, and what it waits for. A
// worker owns it.
type conn struct {
	fd    int
	index int
	poll  *poll

	replies
	out     []byte // requests
	outSent int    // of them already written
	rest    []byte // the start of a line whose end has not arrived
	writing bool   // the poll tells when the descriptor takes more
}

// flush writes what there is to send, as far as the descriptor takes it.
func (c *conn) flush() error {
	for c.outSent < len(c.out) {
		n, err := unix.Write(c.fd, c.out[c.outSent:])
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			return c.failed("write", err)
		}
		c.outSent += n
		c.counts.sentBytes += uint64(n)
	}
	done := c.outSent == len(c.out)
	if done {
		c.out, c.outSent = c.out[:0], 0
	}
	if c.writing != done {
		return nil
	}
	c.writing = !done
	return c.poll.watch(c.fd, c.index, c.writing)
}

// receive reads once into buf and scans what came. buf is the worker's, and
// much longer than a line.
func (c *conn) receive(buf []byte) error {
	kept := copy(buf, c.rest)
	n, err := unix.Read(c.fd, buf[kept:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return c.failed("read", err)
	case n == 0:
		return c.failed("read", io.ErrUnexpectedEOF)
	}
	c.counts.receivedBytes += uint64(n)
	b := buf[:kept+n]
	used, err := c.scan(b)
	if err != nil {
		return err
	}
	c.rest = append(c.rest[:0], b[used:]...)
	return nil
}

// failed says what ended the connection, and the server's own words if it
// had any.
func (c *conn) failed(what string, err error) error {
	err = fmt.Errorf("bench: %s with %d requests in flight: %w", what, c.queue.len(), err)
	if c.firstError != "" {
		err = errors.Join(err, fmt.Errorf("bench: server said %q", c.firstError))
	}
	return err
}

func (c *conn) close() { unix.Close(c.fd) }
