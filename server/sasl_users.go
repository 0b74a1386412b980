package server

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/bcrypt"
)

// The users of -S, and their passwords. A file holds a line for each,
//
//	user:$2a$10$...
//
// as htpasswd -B and quarry passwd write them; empty lines and those that begin
// with # are passed over. A hash takes milliseconds to try, which no event loop
// may spend. So it is tried in the goroutine of a connection that is aside, one
// at a time over the whole server; and of a password that was right a keyed
// digest is kept, for the next connections of the same client.

const (
	// usersMaxBytes is the largest file of users.
	usersMaxBytes = 1 << 20

	// passwordMaxBytes is the longest password: bcrypt does not look further.
	passwordMaxBytes = 72

	// hashBytes is the length of a hash, hashCostMax the slowest one that is
	// taken: it takes a second or so.
	hashBytes   = 60
	hashCostMax = 14
)

// saslUsers is the table of users, which can be read again.
type saslUsers struct {
	path  string
	key   [sha256.Size]byte // of the digests; random
	table atomic.Pointer[map[string]*saslUser]

	// nobody is what a user that there is not is tried against, so that it
	// takes as long.
	nobody atomic.Pointer[saslUser]

	trying chan struct{} // holds a token while a hash is being tried
}

// saslUser is one line of the file.
type saslUser struct {
	hash  []byte
	right atomic.Pointer[[sha256.Size]byte] // digest of the password, once it was given
}

// openUsers reads the users in the file at path.
func openUsers(path string) (*saslUsers, error) {
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, err
	}
	u := &saslUsers{path: path, trying: make(chan struct{}, 1)}
	_, _ = rand.Read(u.key[:]) // does not fail
	if err := u.reload(); err != nil {
		return nil, err
	}
	return u, nil
}

// reload reads the file again. When it fails the users stay as they are.
func (u *saslUsers) reload() error {
	f, err := os.Open(u.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, usersMaxBytes+1))
	if err != nil {
		return err
	}
	table, cost, err := parseUsers(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", u.path, err)
	}
	hash, err := bcrypt.GenerateFromPassword(u.key[:], cost)
	if err != nil {
		return err
	}
	if old := u.table.Load(); old != nil {
		for name, now := range table {
			if was := (*old)[name]; was != nil && bytes.Equal(was.hash, now.hash) {
				now.right.Store(was.right.Load())
			}
		}
	}
	u.nobody.Store(&saslUser{hash: hash})
	u.table.Store(&table)
	return nil
}

// reloadUsers is what Reload does about -S.
func (s *Server) reloadUsers() {
	if s.saslUsers == nil {
		return
	}
	if err := s.saslUsers.reload(); err != nil {
		s.log.Warn("file of users not read again, they stay as they are", "error", err)
		return
	}
	s.log.Info("file of users read again", "file", s.saslUsers.path, "users", len(*s.saslUsers.table.Load()))
}

// parseUsers reads the lines of a file of users. cost is that of the slowest
// hash.
func parseUsers(text string) (table map[string]*saslUser, cost int, err error) {
	if len(text) > usersMaxBytes {
		return nil, 0, fmt.Errorf("more than %d bytes", usersMaxBytes)
	}
	table, cost = make(map[string]*saslUser), bcrypt.MinCost
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		fail := func(what string) (map[string]*saslUser, int, error) {
			return nil, 0, fmt.Errorf("line %d: %s", i+1, what)
		}
		name, hash, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return fail("want user:hash")
		}
		c, err := bcrypt.Cost([]byte(hash))
		switch {
		case err != nil || len(hash) != hashBytes:
			return fail("the password of " + name + " is no bcrypt hash: make one with quarry passwd")
		case c > hashCostMax:
			return fail(fmt.Sprintf("the hash of %s has the cost %d, which takes too long: %d at most", name, c, hashCostMax))
		case table[name] != nil:
			return fail("a second " + name)
		}
		table[name] = &saslUser{hash: []byte(hash)}
		cost = max(cost, c)
	}
	if len(table) == 0 {
		return nil, 0, errors.New("no users")
	}
	return table, cost, nil
}

// knows reports whether the password was right before. It takes microseconds.
func (u *saslUsers) knows(name, password []byte) bool {
	who := (*u.table.Load())[string(name)]
	if who == nil {
		return false
	}
	right := who.right.Load()
	if right == nil {
		return false
	}
	digest := u.digest(password)
	return subtle.ConstantTimeCompare(digest[:], right[:]) == 1
}

// try reports whether the password is right. It takes long, and longer while
// others are tried; when stop is closed the answer is no.
func (u *saslUsers) try(name, password []byte, stop <-chan struct{}) bool {
	if len(password) > passwordMaxBytes {
		return false
	}
	select {
	case u.trying <- struct{}{}:
	case <-stop:
		return false
	}
	defer func() { <-u.trying }()
	who, ok := (*u.table.Load())[string(name)]
	if !ok {
		who = u.nobody.Load()
	}
	if !hashMatches(who.hash, password) || !ok {
		return false
	}
	digest := u.digest(password)
	who.right.Store(&digest)
	return true
}

// digest is what is kept of a password.
func (u *saslUsers) digest(password []byte) (d [sha256.Size]byte) {
	mac := hmac.New(sha256.New, u.key[:])
	mac.Write(password)
	mac.Sum(d[:0])
	return d
}
