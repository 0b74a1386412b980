package server

import (
	"os"
	"testing"
)

// spymemcachedJar is where Debian puts it.
const spymemcachedJar = "/usr/share/java/spymemcached.jar"

// TestSpymemcached runs a program that uses spymemcached, a client of Java
// that sends without waiting. It knows no unix sockets.
func TestSpymemcached(t *testing.T) {
	needProgram(t, "default-jdk-headless", "javac") // runs programs from source
	java := needProgram(t, "default-jdk-headless", "java")
	if _, err := os.Stat(spymemcachedJar); err != nil {
		t.Skip("skipped: no spymemcached (Debian package libspymemcached-java)")
	}
	clientInBoth(t, tcpOnly, java, "-cp", spymemcachedJar, "testdata/Spymemcached.java")
	clientOver(t, saslOnly, java, "-cp", spymemcachedJar, "testdata/Spymemcached.java", "binary")
}
