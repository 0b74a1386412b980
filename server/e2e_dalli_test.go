package server

import "testing"

// TestDalli runs a program that uses dalli, the client of Ruby and Rails. This
// version of it speaks the binary protocol alone.
func TestDalli(t *testing.T) {
	ruby := needProgram(t, "ruby", "ruby")
	if _, err := runProgram(t, ruby, "-e", "require 'dalli'; exit Dalli::VERSION < '3.2'"); err != nil {
		t.Skip("skipped: ruby has no dalli before 3.2 (Debian package ruby-dalli)")
	}
	clientOver(t, []string{"tcp", "unix", "sasl"}, ruby, "testdata/dalli_e2e.rb")
}
