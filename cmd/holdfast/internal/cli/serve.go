package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastlock/holdfast/cell/server"
)

func (a *app) serveCommand() *cobra.Command {
	var c server.Config
	var level slog.Level
	var forPrograms bool
	var audit string
	var reserve uint32 // MiB
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a member of a lock service of your own",
		Long: `Run a member of a cell, a lock service. Clients come by cell://HOST:PORT, or by HTTP with JSON.

Without a flag it is a cell of one member, for this host alone, which keeps its data in
$XDG_STATE_HOME/holdfast/cell or ~/.local/state/holdfast/cell. Start each of several members with
its own --name and --data, and with the same list of --member.

For other hosts it needs a certificate, and must know who calls: give it --tls-client-ca, or a file
with --principals. It reads certificates and principals again when they change.

Each flag may also stand in the environment, as HOLDFAST_SERVE_ and its name in capitals with _
for -, several values separated by commas: HOLDFAST_SERVE_LISTEN=10.0.0.1:7433. A flag is stronger.

On SIGTERM or SIGINT it sends its clients to other members and stops. A second signal stops it at
once.

` + exitCodes,
		Example: `  holdfast serve
  holdfast serve --name a --data /var/lib/holdfast --listen 10.0.0.1:7433 \
    --tls-cert a.pem --tls-key a.key --principals principals.json \
    --peer-cert a.pem --peer-key a.key --peer-ca ca.pem \
    --member a=https://10.0.0.1:7434 --member b=https://10.0.0.2:7434 \
    --member c=https://10.0.0.3:7434`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillIn(cmd); err != nil {
				return err
			}
			if err := setData(&c); err != nil {
				return err
			}
			if c.Reserve = int64(reserve) << 20; reserve == 0 {
				c.Reserve = -1 // none
			}
			o := &slog.HandlerOptions{Level: level}
			c.Log = slog.New(slog.NewTextHandler(os.Stderr, o))
			if forPrograms {
				c.Log = slog.New(slog.NewJSONHandler(os.Stderr, o))
			}
			if audit != "" {
				// It stays open until the process ends. Each line is one write: several members may share a file.
				file, err := os.OpenFile(audit, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return usagef("--audit: %w", err)
				}
				c.Audit = slog.New(slog.NewJSONHandler(file, nil))
			}
			return serve(cmd.Context(), c)
		},
	}
	memberFlags(cmd, &c)
	flags := cmd.Flags()
	flags.StringVar(&c.Listen, "listen", server.DefaultListen, "where clients come to, as `host:port`")
	flags.StringVar(&c.TLS.Cert, "tls-cert", "", "`file` with the certificate for clients")
	flags.StringVar(&c.TLS.Key, "tls-key", "", "`file` with its private key")
	flags.StringVar(&c.TLS.CA, "tls-client-ca", "", "`file` with the authority of clients' certificates")
	flags.StringVar(&c.Principals, "principals", "", "`file` that says who may do what")
	flags.StringVar(&c.PeerListen, "peer-listen", "", "`host:port` for the other members, if not that of its URL")
	flags.StringVar(&c.PeerTLS.Cert, "peer-cert", "", "`file` with the certificate among members")
	flags.StringVar(&c.PeerTLS.Key, "peer-key", "", "`file` with its private key")
	flags.StringVar(&c.PeerTLS.CA, "peer-ca", "", "`file` with the authority of members' certificates")
	flags.TextVar(&level, "log", slog.LevelInfo, "the `level` of what to log: debug, info, warn or error")
	flags.StringVar(&audit, "audit", "", "`file` for who broke, killed and changed what, as JSON, if not in the log")
	flags.BoolVar(&c.Insecure, "insecure", false, "allow other hosts without certificates or principals")
	flags.BoolVar(&c.Join, "join", false, "the cell is there already, and knows of this member")
	flags.BoolVar(&forPrograms, "log-json", false, "log for programs")
	flags.IntVar(&c.Connections, "connections", server.DefaultConnections, "`number` of connections of clients at most")
	flags.DurationVar(&c.Heartbeat, "heartbeat", 0, "`time` between two heartbeats of the leader (default 100ms)")
	flags.DurationVar(&c.Election, "election", 0, "`time` without one before another leader is elected (default 1s)")
	flags.Uint32Var(&reserve, "reserve", server.DefaultReserve>>20, "`MiB` of the disk to leave free: below it nobody gets anything new")
	return cmd
}

// stopWithin is how long a member may take to send its clients to others.
const stopWithin = 10 * time.Second

// gcPercent is how much garbage there may be beside what a member needs, unless GOGC says it. Most of that lives as long as
// sessions do. With 100, as Go has it, members need 1.4 times the memory and four fifths of the processor time.
const gcPercent = 28

// serve runs a member until it is told to stop, or fails.
func serve(ctx context.Context, c server.Config) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process, also while it starts
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	m, err := server.Start(ctx, c)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // it was told to stop before it had started
	case errors.Is(err, server.ErrConfig):
		return usagef("%w", err)
	case err != nil:
		return storeError(err)
	}
	fmt.Printf("%s\n", m.URL())
	select {
	case <-ctx.Done():
	case err = <-m.Failed():
		c.Log.Error("this member cannot go on", "error", err)
	}
	stop()
	within, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if stopped := m.Stop(within); err == nil && stopped != nil {
		c.Log.Warn("clients were cut off", "error", stopped)
	}
	if err != nil {
		return storeError(err)
	}
	return nil
}

// fillIn gives flags that were not given the values that the environment has for them.
func fillIn(cmd *cobra.Command) (err error) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		variable := "HOLDFAST_SERVE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text, ok := os.LookupEnv(variable)
		if !ok || f.Changed {
			return
		}
		if failed := cmd.Flags().Set(f.Name, text); failed != nil {
			err = usagef("%s: %w", variable, failed)
		}
	})
	return err
}
