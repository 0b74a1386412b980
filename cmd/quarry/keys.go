package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/cespare/xxhash/v2"
	"golang.org/x/term"

	"github.com/quarrycache/quarry/cluster/bucket"

	"github.com/quarrycache/quarry/meta"
)

// serverFlags say which server to ask: one, or of a cluster the owner of the key.
type serverFlags struct {
	Server   string `env:"QUARRY_SERVER" placeholder:"HOST:PORT" help:"Server, or unix:PATH. Default: the key's owner with --cluster, else 127.0.0.1:11211."`
	Cluster  string `env:"QUARRY_CLUSTER" placeholder:"STORE" help:"Where the map of a cluster is: file:PATH or etcd:HOST:PORT,..."`
	EtcdCA   string `name:"etcd-ca" type:"path" placeholder:"FILE" help:"etcd speaks TLS, with certificates that are signed by these."`
	EtcdCert string `name:"etcd-cert" type:"path" placeholder:"FILE" help:"Our certificate for etcd."`
	EtcdKey  string `name:"etcd-key" type:"path" placeholder:"FILE" help:"Its key."`
	wireFlags
}

const serverDefault = "127.0.0.1:11211"

// clusterMap is the map: of the store, or as the server has it. It is nil if
// there is only a server, and that has none.
func (f *serverFlags) clusterMap(ctx context.Context) (*bucket.Map, error) {
	if f.Server != "" || f.Cluster == "" {
		return f.mapOf(ctx, bucket.Node{Addr: cmp.Or(f.Server, serverDefault)})
	}
	store := storeFlags{Cluster: f.Cluster, EtcdCA: f.EtcdCA, EtcdCert: f.EtcdCert, EtcdKey: f.EtcdKey}
	s, err := store.open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Get(ctx)
}

// connect connects to the server for a key.
func (f *serverFlags) connect(ctx context.Context, key []byte) (*wire, error) {
	addr := cmp.Or(f.Server, serverDefault)
	if f.Server == "" && f.Cluster != "" {
		m, err := f.clusterMap(ctx)
		if err != nil {
			return nil, err
		}
		addr = m.OwnerOf(bucket.Of(key)).Addr
	}
	return f.dial(ctx, addr)
}

// errKey says that a key cannot stand in a line.
var errKey = errors.New("want 1 to 250 bytes without spaces; quarry mg, ms, md and ma take the others in base64, with the flag b")

// one sends one request for a key, and hands its reply to show.
func (f *serverFlags) one(ctx context.Context, key string, request []byte, show func(w *wire, r *meta.Reply) error) error {
	if len(key) == 0 || len(key) > meta.KeyMax || !meta.ValidTextKey([]byte(key)) {
		return fmt.Errorf("quarry: key %q: %w", key, errKey)
	}
	w, err := f.connect(ctx, []byte(key))
	if err != nil {
		return err
	}
	defer w.close()
	r, err := w.ask(request)
	if err != nil {
		return err
	}
	switch r.Code {
	case meta.CodeError, meta.CodeClientError, meta.CodeServerError:
		return fmt.Errorf("quarry: %s: %s %s", w.addr, r.Code, r.Text)
	}
	return show(w, r)
}

// errMiss ends quarry with the status of a failure, which scripts look at.
var errMiss = errors.New("quarry: not found")

// getCommand is quarry get.
type getCommand struct {
	serverFlags
	Key string `arg:"" help:"Key."`
}

// Run prints the value as it is, with a line end behind it at a terminal.
func (c *getCommand) Run(ctx context.Context, k *kong.Kong) error {
	return c.one(ctx, c.Key, []byte("get "+c.Key+"\r\n"), func(w *wire, r *meta.Reply) error {
		if r.Code != meta.CodeValue {
			return errMiss
		}
		if _, err := k.Stdout.Write(r.Value); err != nil {
			return err
		}
		if isTerminal(k.Stdout) {
			_, err := io.WriteString(k.Stdout, "\n")
			return err
		}
		return nil
	})
}

// setCommand is quarry set.
type setCommand struct {
	serverFlags
	Key   string `arg:"" help:"Key."`
	Value string `arg:"" optional:"" help:"Value; without it, or with -, what standard input has."`
	TTL   int32  `name:"ttl" placeholder:"SECONDS" help:"Seconds to live; 0 is without end, -1 has ended already."`
	Flags uint32 `placeholder:"N" help:"Client flags."`
}

// Run stores a value.
func (c *setCommand) Run(ctx context.Context, k *kong.Kong) error {
	value, err := valueOf(c.Value)
	if err != nil {
		return err
	}
	request := fmt.Appendf(nil, "set %s %d %d %d\r\n", c.Key, c.Flags, c.TTL, len(value))
	return c.one(ctx, c.Key, meta.AppendBlock(request, value), func(w *wire, r *meta.Reply) error {
		if r.Code != meta.CodeStored {
			return fmt.Errorf("quarry: %s: not stored: %s", w.addr, bytes.TrimSpace(w.raw()))
		}
		return nil
	})
}

// deleteCommand is quarry delete.
type deleteCommand struct {
	serverFlags
	Key string `arg:"" help:"Key."`
}

// Run deletes an item.
func (c *deleteCommand) Run(ctx context.Context, k *kong.Kong) error {
	return c.one(ctx, c.Key, []byte("delete "+c.Key+"\r\n"), func(w *wire, r *meta.Reply) error {
		if r.Code != meta.CodeDeleted {
			return errMiss
		}
		return nil
	})
}

// metaCommand is quarry mg, md and ma: the reply is printed as it comes.
type metaCommand struct {
	serverFlags
	Key   string   `arg:"" help:"Key."`
	Flags []string `arg:"" optional:"" help:"Flags of the command, as in: v t f"`
}

// mgCommand is quarry mg.
type mgCommand struct{ metaCommand }

// Run gets an item.
func (c *mgCommand) Run(ctx context.Context, k *kong.Kong) error { return c.run(ctx, k, "mg") }

// mdCommand is quarry md.
type mdCommand struct{ metaCommand }

// Run deletes an item, or marks it.
func (c *mdCommand) Run(ctx context.Context, k *kong.Kong) error { return c.run(ctx, k, "md") }

// maCommand is quarry ma.
type maCommand struct{ metaCommand }

// Run counts.
func (c *maCommand) Run(ctx context.Context, k *kong.Kong) error { return c.run(ctx, k, "ma") }

func (c *metaCommand) run(ctx context.Context, k *kong.Kong, verb string) error {
	return c.meta(ctx, k, c.Key, c.Flags, verb+" "+c.Key, nil)
}

// msCommand is quarry ms.
type msCommand struct {
	serverFlags
	Key   string   `arg:"" help:"Key."`
	Value string   `arg:"" help:"Value; - is what standard input has."`
	Flags []string `arg:"" optional:"" help:"Flags of the command, as in: T60 F1"`
}

// Run stores an item.
func (c *msCommand) Run(ctx context.Context, k *kong.Kong) error {
	value, err := valueOf(c.Value)
	if err != nil {
		return err
	}
	return c.meta(ctx, k, c.Key, c.Flags, fmt.Sprintf("ms %s %d", c.Key, len(value)), meta.AppendBlock(nil, value))
}

// meta sends a meta command, and prints what comes.
func (f *serverFlags) meta(ctx context.Context, k *kong.Kong, key string, flags []string, line string, block []byte) error {
	for _, flag := range flags {
		if flag == "" || strings.ContainsAny(flag, " \r\n") {
			return fmt.Errorf("quarry: flag %q: want a letter, and what belongs to it", flag)
		}
		switch {
		case flag == "q":
			return errors.New("quarry: flag q: nothing would come for some replies")
		case flag == "b":
			// The owner is that of the bytes under which the item is stored.
			raw, err := base64.StdEncoding.DecodeString(key)
			if err != nil {
				return fmt.Errorf("quarry: key %q with the flag b: %w", key, err)
			}
			key = string(raw)
		}
		line += " " + flag
	}
	w, err := f.connect(ctx, []byte(key))
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := w.ask(append([]byte(line+"\r\n"), block...)); err != nil {
		return err
	}
	_, err = k.Stdout.Write(bytes.ReplaceAll(w.raw(), []byte("\r\n"), []byte("\n")))
	return err
}

// valueOf is a value that was typed, or that comes from a pipe.
func valueOf(typed string) ([]byte, error) {
	if typed != "" && typed != "-" {
		return []byte(typed), nil
	}
	value, err := io.ReadAll(io.LimitReader(os.Stdin, meta.ValueMax+1))
	if err != nil {
		return nil, fmt.Errorf("quarry: %w", err)
	}
	return value, nil
}

// whereCommand is quarry where.
type whereCommand struct {
	serverFlags
	Key  string `arg:"" help:"Key."`
	JSON bool   `name:"json" help:"Print it as JSON."`
}

// whereReport says where a key lives.
type whereReport struct {
	Key    string         `json:"key"`
	Hash   string         `json:"xxh64"`
	Bucket int            `json:"bucket"`
	Map    bucket.Epoch   `json:"map"`
	Owner  bucket.Node    `json:"owner"`
	Since  bucket.Epoch   `json:"since"`
	Copies []bucket.Node  `json:"copies,omitempty"`
	Split  []*whereReport `json:"split,omitempty"` // the places of a key that is split
}

func where(m *bucket.Map, key string) *whereReport {
	h := xxhash.Sum64String(key)
	b := bucket.OfHash(h)
	r := &whereReport{Key: key, Hash: fmt.Sprintf("%016x", h), Bucket: b, Map: m.Epoch, Owner: *m.OwnerOf(b), Since: m.Buckets[b].Since}
	for _, c := range m.Buckets[b].Copies {
		r.Copies = append(r.Copies, m.Nodes[c])
	}
	if s, ok := m.SplitOf([]byte(key)); ok {
		for i := range max(s.N, s.Former) {
			r.Split = append(r.Split, where(m, fmt.Sprintf("%s#%d", key, i)))
		}
	}
	return r
}

// Run says where a key lives.
func (c *whereCommand) Run(ctx context.Context, k *kong.Kong) error {
	m, err := c.clusterMap(ctx)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("quarry: the server at %s has no map: every key is there", cmp.Or(c.Server, serverDefault))
	}
	r := where(m, c.Key)
	if c.JSON {
		return printJSON(k.Stdout, r)
	}
	t := newTable(k.Stdout)
	t.row("KEY", "BUCKET", "OWNER", "ADDRESS", "ZONE", "SINCE", "COPIES")
	for _, r := range append([]*whereReport{r}, r.Split...) {
		var copies []string
		for _, n := range r.Copies {
			copies = append(copies, n.ID)
		}
		t.row(r.Key, fmt.Sprint(r.Bucket), r.Owner.ID, r.Owner.Addr, dash(r.Owner.Zone), r.Since.String(), dash(strings.Join(copies, " ")))
	}
	t.flush()
	return t.err
}

// isTerminal reports whether somebody looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
