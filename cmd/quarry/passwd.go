package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/term"
)

// passwdCommand is quarry passwd: it makes a line of the file that quarryd -S
// reads.
type passwdCommand struct {
	Name string `arg:"" help:"User."`
	Cost int    `default:"10" help:"Cost of the hash, from 4 to 14: each step doubles the time that a guess takes, and a login."`
}

// Run asks for the password, or reads it from a pipe, and prints the line.
func (c *passwdCommand) Run(k *kong.Kong) error {
	password, err := askPassword(os.Stdin, k.Stderr)
	if err != nil {
		return err
	}
	line, err := c.line(password)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(k.Stdout, line)
	return err
}

// line is the line for a password.
func (c *passwdCommand) line(password string) (string, error) {
	switch {
	case c.Name == "" || c.Name[0] == '#' || strings.ContainsAny(c.Name, ":\r\n\x00"):
		return "", fmt.Errorf("quarry: no user can have the name %q", c.Name)
	case password == "":
		return "", errors.New("quarry: the password is empty")
	case strings.ContainsRune(password, 0):
		return "", errors.New("quarry: the password has a NUL in it")
	case c.Cost < bcrypt.MinCost || c.Cost > 14:
		return "", fmt.Errorf("quarry: --cost %d: want 4 to 14", c.Cost)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), c.Cost)
	if err != nil { // it is too long
		return "", fmt.Errorf("quarry: %w", err)
	}
	return c.Name + ":" + string(hash), nil
}

// askPassword reads a line from in: from a terminal twice, and unseen.
func askPassword(in *os.File, out io.Writer) (string, error) {
	fd := int(in.Fd())
	if !term.IsTerminal(fd) {
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("quarry: read the password: %w", err)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	var typed [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		_, _ = fmt.Fprint(out, prompt)
		b, err := term.ReadPassword(fd)
		_, _ = fmt.Fprintln(out)
		if err != nil {
			return "", fmt.Errorf("quarry: read the password: %w", err)
		}
		typed[i] = string(b)
	}
	if typed[0] != typed[1] {
		return "", errors.New("quarry: that was not the same password")
	}
	return typed[0], nil
}
