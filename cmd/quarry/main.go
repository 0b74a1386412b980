// Command quarry is the operator's tool for Quarry servers.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/bench"
)

// cli is the command line.
type cli struct {
	Bench struct {
		Load    benchCommand        `cmd:"" default:"withargs" help:"Put load on a memcached-compatible server and report throughput, latency and the server's CPU per operation. (The default.)"`
		Cluster benchClusterCommand `cmd:"" help:"Put load on a cluster through the Go client, as applications do, and report what reads found, where it came from, and what reached the nodes and the source. The client begins with --server, which may be several with commas between them, or with the nodes of the map in --cluster."`
		Replay  replayCommand       `cmd:"" help:"Replay traces of real systems and report misses."`
	} `cmd:"" help:"Measure servers, and caches on traces."`

	Cluster clusterCommands `cmd:"" help:"Look at the map of a cluster, and change it."`
	Control controlCommand  `cmd:"" help:"Run the control plane of a cluster: it keeps the map, and watches the nodes."`

	Where  whereCommand  `cmd:"" help:"Say which node of a cluster has a key."`
	Get    getCommand    `cmd:"" help:"Print the value of a key."`
	Set    setCommand    `cmd:"" help:"Store a value."`
	Delete deleteCommand `cmd:"" help:"Delete a key."`
	Mg     mgCommand     `cmd:"" help:"Send a meta get, and print the reply."`
	Ms     msCommand     `cmd:"" help:"Send a meta set, and print the reply."`
	Md     mdCommand     `cmd:"" help:"Send a meta delete, and print the reply."`
	Ma     maCommand     `cmd:"" help:"Send a meta arithmetic, and print the reply."`
	Top    topCommand    `cmd:"" help:"Watch the nodes of a cluster, or servers, at work."`

	Passwd passwdCommand `cmd:"" help:"Make a line of the file of users for quarryd -S. The password is asked for, or read from a pipe."`

	Version    versionCommand    `cmd:"" help:"Print the version."`
	Completion completionCommand `cmd:"" help:"Print the script that completes commands and flags in a shell."`
	Man        manCommand        `cmd:"" hidden:"" help:"Print the source of the man page."`
}

// options are what kong is told beyond the structs.
func options() []kong.Option {
	return []kong.Option{
		kong.Name("quarry"),
		kong.Description("The operator's tool for Quarry, a memcached-compatible cache server."),
		kong.UsageOnError(),
		kong.Vars{"traces": bench.TracesDir(), "policies": bench.PolicyNames()},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := kong.Parse(&cli{}, options()...)
	command.BindTo(ctx, (*context.Context)(nil))
	command.FatalIfErrorf(command.Run())
}
