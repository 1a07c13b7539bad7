package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/doctor"
	"github.com/holdfastlock/holdfast/internal/console"
	"github.com/holdfastlock/holdfast/internal/display"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// shortestToken is how many bytes the token of a console has at least.
const shortestToken = 16

func (a *app) consoleCommand() *cobra.Command {
	var listen, tokenFile string
	var allowBreak bool
	cmd := &cobra.Command{
		Use:   "console [URL…]",
		Short: "Show the locks of stores on a live page",
		Long: `Serve a page that shows who holds and who waits for the locks of one or more stores, live, and
print its address. Without a URL it is the store that the other commands use. The page finds
names and notes, shows holds that were lost or broken, and runs the doctor. With --allow-break it
also ends a hold by the token that it shows, as the command break does.

By default it listens at a free port of this host alone, and everybody on this host may look. For
other hosts give it --listen and --token-file: a file with a secret of at least 16 bytes, by which
browsers log in. It speaks HTTP without TLS, so put it behind a proxy with TLS.

On SIGINT (Ctrl-C) or SIGTERM it stops, with exit code 0.

` + exitCodes,
		Example: `  holdfast console
  holdfast console --allow-break --listen 127.0.0.1:7480 redis://localhost:6379 etcd://localhost
  HOLDFAST_STORE=postgres://locks:secret@db/app holdfast console --listen :7480 --token-file token`,
		RunE: func(cmd *cobra.Command, urls []string) error {
			token, err := consoleToken(listen, tokenFile)
			if err != nil {
				return err
			}
			if len(urls) > 0 && a.store != "" {
				return usagef("name stores either by --store or by arguments, not by both")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process
			var shown []console.Store
			for i := range max(len(urls), 1) {
				b := *a
				if len(urls) > 0 {
					b.store = urls[i]
				}
				s, err := b.open(ctx)
				if err != nil {
					return err
				}
				defer s.Close()
				shown = append(shown, b.shownStore(s, allowBreak))
			}
			return serveConsole(ctx, listen, console.Guard(console.New(ctx, shown...), token))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "where browsers come to, as `host:port`; port 0: a free one")
	flags.StringVar(&tokenFile, "token-file", "", "`file` with the token by which browsers log in")
	flags.BoolVar(&allowBreak, "allow-break", false, "let the page end holds")
	return cmd
}

// consoleToken returns the token by which browsers log in; "": they need none.
func consoleToken(listen, file string) (string, error) {
	_, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", usagef("--listen is %q: host:port is right", listen)
	}
	if file == "" {
		if !storeurl.Loopback(listen) {
			return "", usagef("--listen %s is not of this host alone: everybody on the network could look. "+
				"Give the console a --token-file", listen)
		}
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < shortestToken {
		return "", usagef("--token-file: the token has %d bytes: at least %d are needed", len(token), shortestToken)
	}
	return token, nil
}

// shownStore is an open store as a console shows it.
func (a *app) shownStore(s *store, allowBreak bool) console.Store {
	shown := console.Store{Name: s.shown, List: s.List, Doctor: func(ctx context.Context) (list []console.Finding) {
		u, err := a.parseStore()
		if err != nil {
			return []console.Finding{{Check: "URL", Severity: string(doctor.Error), Found: err.Error()}}
		}
		ctx, cancel := context.WithTimeout(ctx, openWithin)
		defer cancel()
		for _, f := range doctor.Examine(ctx, doctor.Patient{URL: u, Client: s.Client}) {
			list = append(list, console.Finding{Check: f.Check, Severity: string(f.Severity), Found: f.Found, Risk: f.Risk, Remedy: f.Remedy})
		}
		return list
	}}
	if allowBreak {
		shown.Break = func(ctx context.Context, name string, t holdfast.Token) error {
			err := s.Break(ctx, name, t)
			if err == nil {
				tell(fmt.Sprintf("holdfast: broke %s, token %d, in %s\n", display.Escape(name), t, s.shown))
			}
			return err
		}
	}
	return shown
}

// serveConsole serves a console until the context ends.
func serveConsole(ctx context.Context, listen string, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return &exitError{exitInternal, fmt.Errorf("--listen: %w", err)}
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // what strangers send is no error of ours
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if _, err := fmt.Printf("http://%s/\n", l.Addr()); err != nil {
		l.Close()
		return err
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return &exitError{exitInternal, err}
	}
	return nil
}
