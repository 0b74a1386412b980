package server

import (
	"crypto/subtle"
	"encoding/base64"
	"runtime"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/blowfish" //nolint:staticcheck // deprecated but for bcrypt, which is made of it
)

// Package bcrypt tries a hash in one piece, and a loop whose processor it runs
// on stands still meanwhile: with one processor, and someone who guesses, a ping
// took 20 ms in the median. What follows is bcrypt.CompareHashAndPassword with a
// turn for others after each step of some 50 µs; then it took 0.04 ms.

const (
	hashSaltBytes   = 22 // of a hash: its salt, in base64
	hashDigestBytes = 31 // the digest behind it, in base64
	digestUsed      = 23 // of 24 bytes; the last one never was
)

// bcryptEncoding is the base64 of bcrypt.
var bcryptEncoding = base64.NewEncoding("./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789").
	WithPadding(base64.NoPadding)

// hashMatches reports whether password is the one of hash, a bcrypt hash of
// hashBytes.
func hashMatches(hash, password []byte) bool {
	cost, err := bcrypt.Cost(hash)
	if err != nil {
		return false
	}
	want := hash[hashBytes-hashDigestBytes:]
	salt := make([]byte, bcryptEncoding.DecodedLen(hashSaltBytes))
	if _, err := bcryptEncoding.Decode(salt, hash[hashBytes-hashDigestBytes-hashSaltBytes:hashBytes-hashDigestBytes]); err != nil {
		return false
	}
	key := append(password[:len(password):len(password)], 0)
	c, err := blowfish.NewSaltedCipher(key, salt)
	if err != nil {
		return false
	}
	for range 1 << cost {
		blowfish.ExpandKey(key, c)
		blowfish.ExpandKey(salt, c)
		runtime.Gosched()
	}
	digest := []byte("OrpheanBeholderScryDoubt")
	for block := digest; len(block) > 0; block = block[blowfish.BlockSize:] {
		for range 64 {
			c.Encrypt(block, block)
		}
	}
	got := make([]byte, bcryptEncoding.EncodedLen(digestUsed))
	bcryptEncoding.Encode(got, digest[:digestUsed])
	return subtle.ConstantTimeCompare(got, want) == 1
}
