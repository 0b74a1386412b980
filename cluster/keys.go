package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// KeySpace makes keys of one kind of data: "catalog:v1:tenant:item". No two
// different (namespace, schema, tenant, id) give the same key, whatever is in
// them, and every key can be split (Options, CLUSTER.md calls the places #0,
// #1, …).
//
// A new schema is a new KeySpace: what the old one stored is never read as if it
// were new, and goes when its deadline comes. Versions of the source stay as
// they are.
type KeySpace struct {
	prefix string // "catalog:v1:"
}

// Longest parts of a key in bytes, escaped; a longer one is replaced by its
// SHA-256. Together with the separators they are at most bucket.SplitKeyMax.
const (
	namespaceMax = 48
	tenantMax    = 64
	idMax        = 120
)

// NewKeySpace is the keys of a namespace in a version of its schema.
func NewKeySpace(namespace string, schema uint32) KeySpace {
	k := appendPart(nil, namespace, namespaceMax)
	k = append(k, ":v"...)
	return KeySpace{string(append(strconv.AppendUint(k, uint64(schema), 10), ':'))}
}

// Key is the key of an item of a tenant. Without tenants, tenant is "".
func (s KeySpace) Key(tenant, id string) string {
	var buf [256]byte
	k := append(buf[:0], s.prefix...)
	k = appendPart(k, tenant, tenantMax)
	k = append(k, ':')
	return string(appendPart(k, id, idMax))
}

// Prefix is what all keys of the space begin with.
func (s KeySpace) Prefix() string { return s.prefix }

// TenantOf is the tenant in a key that a KeySpace made, as it stands there, or
// "" for other keys.
func TenantOf(key string) string {
	_, rest, ok1 := strings.Cut(key, ":")
	_, rest, ok2 := strings.Cut(rest, ":")
	tenant, _, ok3 := strings.Cut(rest, ":")
	if !ok1 || !ok2 || !ok3 {
		return ""
	}
	return tenant
}

// appendPart appends s so that it holds no separator and no other text gives
// the same: bytes other than letters, digits, '-', '_', '.' and '/' as %XX, and
// when that is longer than most, '~' and a digest of s.
func appendPart(dst []byte, s string, most int) []byte {
	from := len(dst)
	for i := range len(s) {
		c := s[i]
		if plainByte(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
		if len(dst)-from > most {
			sum := sha256.Sum256([]byte(s))
			return base64.RawURLEncoding.AppendEncode(append(dst[:from], '~'), sum[:])
		}
	}
	return dst
}

func plainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == '/'
}
