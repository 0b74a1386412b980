package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// Etcd is a store in an etcd, one's own or that of quarry control. Under its
// prefix are
//
//	map              time, and the map in its compact form
//	history/EPOCH    the maps before it, the same way; EPOCH has 16 hexadecimal digits
//	nodes/ID         what a node says of itself, as JSON, as long as its lease lasts
//	controller/…     who may be the active controller: the first that came is
type Etcd struct {
	client *clientv3.Client
	ours   bool   // the client is closed with the store
	scheme string // of its addresses, with ://
	prefix string
	o      Options

	done context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // watches, the keeper of our presence

	mu        sync.Mutex // what follows
	presence  *Presence
	announced chan struct{} // wakes the keeper; nil as long as there is none
}

const (
	etcdPrefixDefault = "quarry"
	etcdTimeout       = 5 * time.Second // of a call whose context has no end of its own
	etcdDialTimeout   = 2 * time.Second
	etcdTimeBytes     = 8 // of a value: Unix milliseconds, big endian
)

// openEtcd opens HOST:PORT,HOST:PORT/PREFIX.
func openEtcd(where string, o Options) (*Etcd, error) {
	hosts, prefix, _ := strings.Cut(where, "/")
	scheme := "http://"
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config != nil {
		scheme = "https://"
	}
	var endpoints []string
	for host := range strings.SplitSeq(hosts, ",") {
		if _, port, err := net.SplitHostPort(host); err != nil || port == "" {
			return nil, fmt.Errorf("control: etcd at %q: want HOST:PORT", host)
		}
		endpoints = append(endpoints, scheme+host)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  config,
		DialTimeout:          etcdDialTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	e := NewEtcd(client, prefix, o)
	e.ours, e.scheme = true, scheme
	return e, nil
}

// NewEtcd is a store on a client that stays the caller's.
func NewEtcd(client *clientv3.Client, prefix string, o Options) *Etcd {
	o.setDefaults()
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		prefix = etcdPrefixDefault
	}
	e := &Etcd{client: client, prefix: "/" + prefix + "/", o: o}
	e.done, e.end = context.WithCancel(context.Background())
	return e
}

// tlsConfig is what the certificates say; nil without any.
func (o *Options) tlsConfig() (*tls.Config, error) {
	if o.CA == "" && o.Cert == "" && o.Key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("control: %s: no certificate in it", o.CA)
		}
	}
	if o.Cert != "" || o.Key != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("control: certificate %q, key %q: %w", o.Cert, o.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Close ends the watches, and takes our presence back.
func (e *Etcd) Close() error {
	e.end()
	e.wg.Wait()
	if !e.ours {
		return nil
	}
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

// call bounds a call in time, unless the caller has.
func (e *Etcd) call(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, etcdTimeout)
}

// wrap says that a call came to nothing.
func (e *Etcd) wrap(err error) error {
	switch {
	case e.done.Err() != nil:
		return ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("control: etcd at %s does not answer: %w", strings.Join(e.client.Endpoints(), ","), err)
	}
	return fmt.Errorf("control: etcd: %w", err)
}

// stored is the map in etcd, nil for none.
type stored struct {
	Entry
	value    []byte
	revision int64 // that put it there
	read     int64 // as of which it was read
}

// get reads the map, as a majority of etcd's members knows it.
func (e *Etcd) get(ctx context.Context) (stored, error) {
	if e.done.Err() != nil {
		return stored{}, ErrClosed
	}
	ctx, cancel := e.call(ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, e.prefix+"map")
	if err != nil {
		return stored{}, e.wrap(err)
	}
	if len(resp.Kvs) == 0 {
		return stored{read: resp.Header.Revision}, nil
	}
	kv := resp.Kvs[0]
	entry, err := decodeEntry(kv.Value)
	if err != nil {
		return stored{}, fmt.Errorf("control: etcd, key %s: %w", kv.Key, err)
	}
	return stored{entry, kv.Value, kv.ModRevision, resp.Header.Revision}, nil
}

func encodeEntry(m *bucket.Map, now time.Time) []byte {
	return m.AppendCompact(binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli())))
}

func decodeEntry(value []byte) (Entry, error) {
	if len(value) < etcdTimeBytes {
		return Entry{}, errors.New("not a map")
	}
	m, err := bucket.Decode(value[etcdTimeBytes:])
	return Entry{Map: m, Published: time.UnixMilli(int64(binary.BigEndian.Uint64(value)))}, err
}

// Get is Store.Get.
func (e *Etcd) Get(ctx context.Context) (*bucket.Map, error) {
	there, err := e.get(ctx)
	if err == nil && there.Map == nil {
		err = ErrNoMap
	}
	return there.Map, err
}

// CompareAndSwap is Store.CompareAndSwap: one transaction, which holds if nobody
// has touched the map since it was compared. If etcd does not answer, the map
// may have been published all the same.
func (e *Etcd) CompareAndSwap(ctx context.Context, old, m *bucket.Map) error {
	there, err := e.get(ctx)
	if err != nil {
		return err
	}
	if err := successor(there.Map, old, m); err != nil {
		return err
	}
	ctx, cancel := e.call(ctx)
	defer cancel()
	then := []clientv3.Op{clientv3.OpPut(e.prefix+"map", string(encodeEntry(m, time.Now())))}
	if there.Map != nil {
		then = append(then, clientv3.OpPut(e.historyKey(there.Map.Epoch), string(there.value)))
		oldest, err := e.oldest(ctx)
		if err != nil {
			return err
		}
		then = append(then, oldest...)
	}
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(e.prefix+"map"), "=", there.revision)).
		Then(then...).
		Commit()
	if err != nil {
		return e.wrap(err)
	}
	if !resp.Succeeded {
		return ErrConflict
	}
	return nil
}

func (e *Etcd) historyKey(epoch bucket.Epoch) string {
	return fmt.Sprintf("%shistory/%016x", e.prefix, uint64(epoch))
}

// oldest are the deletions that make room in the history for one more.
func (e *Etcd) oldest(ctx context.Context) ([]clientv3.Op, error) {
	resp, err := e.client.Get(ctx, e.prefix+"history/", clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	if err != nil {
		return nil, e.wrap(err)
	}
	var ops []clientv3.Op
	// The present map counts, and the one that becomes history now.
	for _, kv := range resp.Kvs[min(len(resp.Kvs), HistoryMax-2):] {
		ops = append(ops, clientv3.OpDelete(string(kv.Key)))
	}
	return ops, nil
}

// History is Store.History.
func (e *Etcd) History(ctx context.Context) ([]Entry, error) {
	there, err := e.get(ctx)
	if err != nil || there.Map == nil {
		return nil, err
	}
	ctx, cancel := e.call(ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, e.prefix+"history/", clientv3.WithPrefix(), clientv3.WithLimit(HistoryMax),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	if err != nil {
		return nil, e.wrap(err)
	}
	history := []Entry{there.Entry}
	for _, kv := range resp.Kvs {
		entry, err := decodeEntry(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("control: etcd, key %s: %w", kv.Key, err)
		}
		// A map may be published while we read.
		if entry.Map.Epoch < there.Map.Epoch {
			history = append(history, entry)
		}
	}
	return history, nil
}

// Liveness is Store.Liveness.
func (e *Etcd) Liveness(ctx context.Context) (Liveness, error) {
	if e.done.Err() != nil {
		return Liveness{}, ErrClosed
	}
	ctx, cancel := e.call(ctx)
	defer cancel()
	var l Liveness
	resp, err := e.client.Get(ctx, e.prefix+"nodes/", clientv3.WithPrefix(), clientv3.WithLimit(bucket.NodesMax))
	if err != nil {
		return l, e.wrap(err)
	}
	for _, kv := range resp.Kvs {
		var p Presence
		if err := json.Unmarshal(kv.Value, &p); err != nil {
			return l, fmt.Errorf("control: etcd, key %s: %w", kv.Key, err)
		}
		l.Nodes = append(l.Nodes, p)
	}
	slices.SortFunc(l.Nodes, func(a, b Presence) int { return strings.Compare(a.ID, b.ID) })
	resp, err = e.client.Get(ctx, e.prefix+"controller/", clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return l, e.wrap(err)
	}
	for _, kv := range resp.Kvs {
		l.Controllers = append(l.Controllers, string(kv.Value))
	}
	return l, nil
}
