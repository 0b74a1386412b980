// Command quarryd is a cache server that answers as memcached 1.6.45 does: its
// flags, its protocols, its statistics.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/server"
)

// closeTimeout bounds the end of the server. It leaves all the same.
const closeTimeout = 10 * time.Second

func main() {
	code, err := run(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// run reads the command line and serves until a signal or a client ends it.
func run(args []string) (code int, err error) {
	defer func() {
		if r := asRefusal(err); r != nil {
			code, err = r.code, r
		} else if err != nil {
			code = exitError
		}
	}()
	f := new(flags)
	ctx, err := f.parse(args)
	if err != nil {
		return 0, err
	}
	switch {
	case f.Help:
		return 0, ctx.PrintUsage(false)
	case f.License:
		fmt.Print(license)
		return 0, nil
	case f.Version:
		fmt.Print(versionLines())
		return 0, nil
	case f.Man:
		fmt.Print(program(ctx.Model).Page())
		return 0, nil
	case f.Completion != "":
		script, err := program(ctx.Model).Completion(f.Completion)
		fmt.Print(script)
		return 0, err
	}
	cfg, warnings, err := f.config()
	if err != nil {
		return 0, err
	}
	if f.Daemon && !daemonChild() {
		return startDaemon()
	}
	for _, w := range append(unused(ctx.Model), warnings...) {
		slog.Warn(w)
	}
	return 0, f.serve(cfg)
}

// parse reads the words of the command line into f.
func (f *flags) parse(args []string) (*kong.Context, error) {
	k, err := newParser(f)
	if err != nil {
		return nil, err
	}
	opts := options(k.Model)
	words, bad := canonical(args[0], opts, args[1:])
	words, err = withConf(args[0], opts, words)
	if err != nil {
		return nil, err
	}
	ctx, err := k.Parse(words)
	if err != nil {
		return nil, err
	}
	return ctx, bad
}

func newParser(f *flags) (*kong.Kong, error) {
	return kong.New(f, kong.Name("quarryd"), kong.NoDefaultHelp(), kong.Help(printHelp))
}

// serve runs the server from start to end.
func (f *flags) serve(cfg server.Config) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGINT, unix.SIGTERM, unix.SIGUSR1)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, unix.SIGHUP)
	signal.Ignore(unix.SIGPIPE)
	if f.CoreDumps {
		if err := allowCores(); err != nil {
			return err
		}
	}
	maps, err := f.openCluster()
	if err != nil {
		return err
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	if f.LockMemory {
		raiseLockLimit()
	}
	if err := assumeUser(f.User); err != nil {
		return err
	}
	if f.Daemon {
		if err := enterDaemon(f.CoreDumps); err != nil {
			return err
		}
	}
	if f.LockMemory {
		lockMemory()
	}
	if err := srv.Start(context.Background()); err != nil {
		return err
	}
	if f.Verbose > 0 {
		logRuntime()
	}
	if maps != nil {
		following, stop := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { f.follow(following, maps, srv) })
		defer func() {
			stop()
			done.Wait()
			_ = maps.Close()
		}()
	}
	if f.PIDFile != "" {
		savePID(f.PIDFile)
	}
	if f.Daemon {
		defer removePID(f.PIDFile)
		if err := leaveTerminal(f.Verbose > 0); err != nil {
			return err
		}
	}

	notify(daemon.SdNotifyReady)
	graceful := false
	for serving := true; serving; {
		select {
		case <-reload:
			srv.Reload()
		case s := <-ended:
			serving, graceful = false, s == unix.SIGUSR1
		case <-srv.ShutdownAsked():
			serving, graceful = false, srv.GracefulAsked()
		}
	}
	notify(daemon.SdNotifyStopping)
	if graceful {
		// It takes as long as the medium of -e takes; a second signal ends it.
		signal.Reset(unix.SIGINT, unix.SIGTERM)
		slog.Info("Gracefully stopping")
		return srv.CloseGracefully(context.Background())
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return srv.Close(ctx)
}

// notify tells systemd what becomes of the server, if it wants to know.
func notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		slog.Warn("systemd is not told", "state", state, "error", err)
	}
}
