package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits of -Y's file. Source: memcached's authfile.c.
const (
	credentialsMax     = 8   // lines that are used
	credentialMaxBytes = 255 // of a line, its end included

	// credentialsFileMaxBytes bounds what is read of a file that cannot be
	// meant: lines after the last one that is used are not looked at.
	credentialsFileMaxBytes = 64 << 10
)

// credentials are the users that -Y's file lists, each with its password.
// Neither is kept, only what they hash to: so a comparison looks at the same
// number of bytes whatever it is about.
type credentials struct {
	digests [credentialsMax][sha256.Size]byte
	n       int
	ignored bool // the file has more lines than are used
}

// errMalformed is a line that has no user.
var errMalformed = errors.New("malformed entry")

// parseCredentials reads lines user:password. The password ends at the line
// end, at a \r before it or at the end of text, and may hold anything else.
func parseCredentials(text []byte) (*credentials, error) {
	c := new(credentials)
	for len(text) > 0 {
		if c.n == credentialsMax {
			c.ignored = true
			break
		}
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line = text[:i+1]
		}
		text = text[len(line):]
		if len(line) > credentialMaxBytes || bytes.IndexByte(line, 0) >= 0 {
			return nil, errMalformed
		}
		user, password, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			return nil, errMalformed
		}
		if i := bytes.IndexAny(password, "\r\n"); i >= 0 {
			password = password[:i]
		}
		c.digests[c.n] = credentialDigest(user, password)
		c.n++
	}
	return c, nil
}

// credentialDigest is what a user and a password hash to, together, and no
// other pair does.
func credentialDigest(user, password []byte) [sha256.Size]byte {
	u, p := sha256.Sum256(user), sha256.Sum256(password)
	return sha256.Sum256(append(u[:], p[:]...))
}

// check reports whether user has password. It takes as long for a user that
// is not there, and for a password that begins well, as for any other.
func (c *credentials) check(user, password []byte) bool {
	digest := credentialDigest(user, password)
	ok := 0
	for i := range c.n {
		ok |= subtle.ConstantTimeCompare(digest[:], c.digests[i][:])
	}
	return ok == 1
}

// loadCredentials reads -Y's file, if there is one. What was there before
// stays when it cannot be read: then the error is a *ConfigError.
func (s *Server) loadCredentials() error {
	path := s.cfg.AuthFile
	if path == "" {
		return nil
	}
	refuse := func(format string, values ...any) error {
		return &ConfigError{"-Y", path, fmt.Sprintf(format, values...), ExitFailure}
	}
	f, err := os.Open(path)
	if err != nil {
		return refuse("Could not open authfile [%s] for reading, error %v", path, errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, credentialsFileMaxBytes))
	if err != nil {
		return refuse("Could not read authfile [%s], error %v", path, errors.Unwrap(err))
	}
	c, err := parseCredentials(text)
	if err != nil {
		return refuse("Authfile [%s] has a malformed entry. Should be 'user:password'", path)
	}
	if c.ignored {
		s.log.Warn("authfile has more lines than are used", "file", path, "used", c.n)
	}
	s.credentials.Store(c)
	return nil
}

// reloadCredentials reads -Y's file again. Who is in stays in.
func (s *Server) reloadCredentials() {
	if s.cfg.AuthFile == "" {
		return
	}
	if err := s.loadCredentials(); err != nil {
		s.log.Warn("authfile not read again, the users stay as they are", "error", err)
		return
	}
	s.log.Info("authfile read again", "file", s.cfg.AuthFile, "users", s.credentials.Load().n)
}

// validateAuth refuses what does not go with -Y, in memcached's words.
func (c *Config) validateAuth() error {
	switch {
	case c.AuthFile == "":
		return nil
	case c.Protocol != "" && c.Protocol != "ascii":
		return &ConfigError{"-B", c.Protocol,
			"ERROR: You cannot allow the BINARY protocol while using ascii authentication tokens.", ExitUsage}
	case c.UDPPort != 0:
		return &ConfigError{"-Y", c.AuthFile,
			"Cannot use UDP with ascii authentication enabled (-U 0 to disable)", ExitUsage}
	}
	return nil
}
