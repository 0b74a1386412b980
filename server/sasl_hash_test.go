package server

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// TestHashMatches: what bcrypt makes matches, and what it does not, does not.
func TestHashMatches(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 30 {
		password := make([]byte, 1+rng.IntN(passwordMaxBytes))
		for j := range password {
			password[j] = byte(1 + rng.IntN(255))
		}
		if i == 0 {
			password = []byte(strings.Repeat("x", passwordMaxBytes))
		}
		hash, err := bcrypt.GenerateFromPassword(password, bcrypt.MinCost+i%2)
		if err != nil {
			t.Fatal(err)
		}
		if !hashMatches(hash, password) {
			t.Errorf("%q: does not match %s", password, hash)
		}
		other := append([]byte(nil), password...)
		other[rng.IntN(len(other))] ^= 1
		if got, want := hashMatches(hash, other), bcrypt.CompareHashAndPassword(hash, other) == nil; got != want || got {
			t.Errorf("%q: got %v, want %v for %s", other, got, want, hash)
		}
	}
	// From others: htpasswd -B, and the test vectors of bcrypt.
	for hash, password := range map[string]string{
		"$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW": "U*U",
		"$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK": "U*U*",
		"$2a$05$XXXXXXXXXXXXXXXXXXXXXOAcXxm9kjPGEMsLznoKqmqw7tc8WCx4a": "U*U*U",
	} {
		if !hashMatches([]byte(hash), []byte(password)) {
			t.Errorf("%q: does not match %s", password, hash)
		}
	}
	if hashMatches([]byte("$2a$04$"+strings.Repeat("!", 53)), []byte("x")) {
		t.Error("a hash with a salt that is none matches")
	}
}
