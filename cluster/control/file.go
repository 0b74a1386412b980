package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// fileStore is a map in one file, in its readable form. Beside PATH are
//
//	PATH.lock      who holds it (flock) may publish
//	PATH.history/  the maps before this one, each named for its epoch
//
// A new map is written beside the file and renamed into its place, so a reader
// sees one or the other. Configuration management may copy the file to other
// machines, in whatever way: those who watch look again when half of it is there.
type fileStore struct {
	path string
	done context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // watches
}

// Watching is by looking: it works on every kind of file system, also where a
// file is replaced together with its folder.
const (
	filePollInterval = 200 * time.Millisecond
	fileLockInterval = 10 * time.Millisecond

	// A file that was written so recently may be written once more without
	// looking different: time stamps are coarse.
	fileRacyTime = 2 * time.Second

	// What cannot be read for so long is not just being copied.
	fileTornTime = time.Second
)

func openFile(path string) *fileStore {
	s := &fileStore{path: path}
	s.done, s.end = context.WithCancel(context.Background())
	return s
}

func (s *fileStore) Close() error {
	s.end()
	s.wg.Wait()
	return nil
}

func (s *fileStore) Get(ctx context.Context) (*bucket.Map, error) {
	if s.done.Err() != nil {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return readMap(s.path)
}

// readMap reads a map from a file.
func readMap(path string) (*bucket.Map, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoMap
	case err != nil:
		return nil, fmt.Errorf("control: %w", err)
	}
	m, err := bucket.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("control: %s: %w", path, err)
	}
	return m, nil
}

func (s *fileStore) CompareAndSwap(ctx context.Context, old, m *bucket.Map) error {
	if s.done.Err() != nil {
		return ErrClosed
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	there, err := readMap(s.path)
	if err != nil && !errors.Is(err, ErrNoMap) {
		return err
	}
	if err := successor(there, old, m); err != nil {
		return err
	}
	if there != nil {
		if err := s.keep(there); err != nil {
			return err
		}
	}
	return replaceFile(s.path, m.JSON())
}

// lock takes the lock over the file, of this process and all others.
func (s *fileStore) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("control: lock %s.lock: %w", s.path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("control: %s.lock is held by another one who publishes: %w", s.path, ctx.Err())
		case <-time.After(fileLockInterval):
		}
	}
}

// replaceFile puts a file in its place as a whole, and on the disk.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	err = cmp.Or(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("control: write %s: %w", path, err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("control: write %s: %w", path, err)
	}
	return nil
}

// historyName is the name of a map in the history: names sort as epochs do, and
// two maps of one epoch, of which one was made by hand, have two.
func historyName(m *bucket.Map) string {
	return fmt.Sprintf("%016x-%s.json", uint64(m.Epoch), m.Digest().String()[:8])
}

// keep puts the map that is in the file into the history, and takes the oldest
// out.
func (s *fileStore) keep(m *bucket.Map) error {
	dir := s.path + ".history"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	path := filepath.Join(dir, historyName(m))
	if err := replaceFile(path, m.JSON()); err != nil {
		return err
	}
	if info, err := os.Stat(s.path); err == nil {
		// When it was published: only shown.
		_ = os.Chtimes(path, info.ModTime(), info.ModTime())
	}
	names, err := s.historyNames()
	if err != nil {
		return err
	}
	for _, name := range names[min(len(names), HistoryMax-1):] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("control: %w", err)
		}
	}
	return nil
}

// historyNames are the files of the history, from the newest on.
func (s *fileStore) historyNames() ([]string, error) {
	entries, err := os.ReadDir(s.path + ".history")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".json") && name[0] != '.' {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

func (s *fileStore) History(ctx context.Context) ([]Entry, error) {
	if s.done.Err() != nil {
		return nil, ErrClosed
	}
	names, err := s.historyNames()
	if err != nil {
		return nil, err
	}
	paths := []string{s.path}
	for _, name := range names {
		paths = append(paths, filepath.Join(s.path+".history", name))
	}
	var history []Entry
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := readMap(path)
		if errors.Is(err, ErrNoMap) {
			continue // it was the oldest, and has gone
		}
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(path); err == nil {
			history = append(history, Entry{Map: m, Published: info.ModTime()})
		}
	}
	return history, nil
}

// Announce does nothing: a file knows nobody.
func (s *fileStore) Announce(Presence) {}

func (s *fileStore) Liveness(context.Context) (Liveness, error) { return Liveness{}, ErrNoLiveness }

func (s *fileStore) Watch(ctx context.Context) <-chan Event {
	c := make(chan Event, 1)
	s.wg.Go(func() {
		defer close(c)
		s.watch(ctx, c)
	})
	return c
}

// look is what a file looks like from outside.
type look struct {
	inode    uint64
	size     int64
	modified unix.Timespec
	changed  unix.Timespec
}

// watch looks at the file until ctx or the store ends.
func (s *fileStore) watch(ctx context.Context, c chan Event) {
	tick := time.NewTicker(filePollInterval)
	defer tick.Stop()
	var (
		told    bool
		toldMap *bucket.Map // nil after an error
		toldErr string
		last    look
		since   time.Time // when it looked otherwise last
		torn    time.Time // since when it cannot be read
	)
	for {
		var st unix.Stat_t
		var now look
		if err := unix.Stat(s.path, &st); err == nil {
			now = look{st.Ino, st.Size, st.Mtim, st.Ctim}
		}
		if now != last || !told {
			last, since = now, time.Now()
		}
		if time.Since(since) < fileRacyTime {
			m, err := readMap(s.path)
			switch {
			case err == nil:
				torn = time.Time{}
				if !told || toldMap == nil || m.Digest() != toldMap.Digest() {
					offer(c, Event{Map: m})
					told, toldMap, toldErr = true, m, ""
				}
			case toldMap != nil && torn.IsZero():
				torn = time.Now()
			case toldMap != nil && time.Since(torn) < fileTornTime:
			case !told || toldMap != nil || err.Error() != toldErr:
				offer(c, Event{Err: err})
				told, toldMap, toldErr, torn = true, nil, err.Error(), time.Time{}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-s.done.Done():
			return
		}
	}
}
