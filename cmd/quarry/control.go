package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/cluster/controller"
)

// controlCommand is quarry control: controller.Config as flags.
type controlCommand struct {
	Data       string            `required:"" type:"path" placeholder:"DIR" help:"Folder of its data."`
	Name       string            `default:"control" help:"Name, among its peers."`
	Listen     string            `default:"127.0.0.1:2379" placeholder:"HOST:PORT" help:"Address for nodes and for quarry."`
	Peer       []controller.Peer `sep:"none" placeholder:"NAME=HOST:PORT" help:"One of the processes that agree; give the flag once for each, this one included. None: it is alone."`
	PeerListen string            `placeholder:"HOST:PORT" help:"Address for its peers, where it is another one than --peer says."`
	Join       bool              `help:"Take the place of a peer that was lost, once the others have been told."`
	CA         string            `name:"ca" type:"existingfile" placeholder:"FILE" help:"Certificates that have signed those of all who may connect. Needed for addresses that are not on loopback."`
	Cert       string            `name:"cert" type:"existingfile" placeholder:"FILE" help:"Its own certificate."`
	Key        string            `name:"key" type:"existingfile" placeholder:"FILE" help:"The key of that."`
	Prefix     string            `placeholder:"NAME" help:"Of the keys, where stores are named etcd:HOST:PORT/NAME."`
}

// Run runs the control plane until it is told to stop.
func (c *controlCommand) Run(ctx context.Context, k *kong.Kong) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	t, err := controller.Start(controller.Config{
		Data: c.Data, Name: c.Name, Listen: c.Listen, Peers: c.Peer, PeerListen: c.PeerListen, Join: c.Join,
		CA: c.CA, Cert: c.Cert, Key: c.Key, Prefix: c.Prefix, Log: log,
	})
	if err != nil {
		return err
	}
	ready, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-t.Ready():
			_, _ = fmt.Fprintf(k.Stdout, "quarry control listens on %s\n", t.Addr())
		case <-ready.Done():
		}
	}()
	err = t.Wait(ctx)
	if closing := t.Close(); err == nil {
		err = closing
	}
	return err
}
