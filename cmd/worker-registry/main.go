// Command worker-registry is a registry for the images of the Workers system, with its content in a
// folder. It deletes content that no tag refers to, at an interval and when it gets SIGUSR1.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ksctl/gitops/internal/version"
	"github.com/ksctl/gitops/internal/workers/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker-registry:", err)
		os.Exit(1)
	}
}

type options struct {
	registry.Options
	registry.ServeOptions
	addr string
}

func newCommand() *cobra.Command {
	o := &options{}
	o.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	cmd := &cobra.Command{
		Use:           "worker-registry",
		Short:         "Serve a registry from a folder",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.addr, "addr", ":5000", "The address of the registry, with /healthz and /readyz.")
	flags.StringVar(&o.Dir, "data", registry.DefaultDir, "The folder with the content.")
	flags.StringVar(&o.CertFile, "tls-cert-file", "",
		"The certificate of the registry, which is read again when it changes; empty is plain HTTP.")
	flags.StringVar(&o.KeyFile, "tls-private-key-file", "", "The key of the certificate.")
	flags.StringVar(&o.HtpasswdFile, "htpasswd-file", "",
		"The users, with passwords hashed by bcrypt; empty permits everybody to pull and push.")
	flags.DurationVar(&o.CollectInterval, "gc-interval", 24*time.Hour,
		"The time between collections of garbage; 0 is never.")
	flags.DurationVar(&o.WriteTimeout, "gc-write-timeout", registry.DefaultWriteTimeout,
		"How long a collection waits for uploads that run; it is done later if they do not end.")
	flags.DurationVar(&o.UploadAge, "upload-age", registry.DefaultUploadAge,
		"The age at which a collection deletes uploads that did not end.")
	cmd.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	logrus.SetLevel(logrus.ErrorLevel)
	logrus.SetFormatter(&serverErrors{})
	ctrllog.SetLogger(logr.FromSlogHandler(o.Log.Handler())) // of the certificate
	signals, collect := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	forwarded := make(chan struct{})
	done, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		<-forwarded
	}()
	go func() {
		defer close(forwarded)
		for {
			select {
			case <-done.Done():
				return
			case <-signals:
				select {
				case collect <- struct{}{}:
				default: // one is requested
				}
			}
		}
	}()
	o.Collect = collect
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.addr)
	if err != nil {
		return err
	}
	r, err := registry.New(ctx, o.Options)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	o.Log.Info("serving", "address", listener.Addr().String(), "data", o.Dir)
	return errors.Join(r.Serve(ctx, listener, o.ServeOptions), r.Close())
}

// serverErrors formats the errors of the library as JSON, without those of requests: that an image
// does not exist, for example, is no error of the server.
type serverErrors struct{ json logrus.JSONFormatter }

// Format implements logrus.Formatter.
func (f *serverErrors) Format(e *logrus.Entry) ([]byte, error) {
	if status, ok := e.Data["http.response.status"].(int); ok && status < http.StatusInternalServerError {
		return nil, nil
	}
	return f.json.Format(e)
}
