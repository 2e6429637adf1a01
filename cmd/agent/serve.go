package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/agent/server"
	"github.com/ksctl/gitops/internal/version"
)

func newServeCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer calls, and do what they begin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(o.logLevel, o.logFormat)
			if err != nil {
				return err
			}
			return o.serve(cmd.Context(), log)
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// newLogger logs to standard error.
func newLogger(level, format string) (logr.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	how := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, how)), nil
	case "text":
		return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, how)), nil
	}
	return logr.Logger{}, fmt.Errorf("--log-format %q: want json or text", format)
}

// serve runs the agent until ctx ends.
func (o *options) serve(ctx context.Context, log logr.Logger) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := o.newServer(log)
	if err != nil {
		return err
	}
	how := server.Listening{Reflection: o.reflection}
	if !o.plaintext {
		how.Identity = &o.identity
	}
	var listening net.ListenConfig
	on, err := listening.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	log.Info("answering calls", "version", version.String(), "address", on.Addr().String(), "plaintext", o.plaintext,
		"certificates", o.identity.ClientCAFile != "", "tokens", o.identity.TokenFile != "")
	all, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	all.Go(func() error {
		defer cancel()
		return s.Serve(ctx, on, how)
	})
	if o.metrics != "" {
		all.Go(func() error { return serveHTTP(ctx, "--metrics-addr", o.metrics, metrics(o.server.Metrics)) })
	}
	if o.health != "" {
		all.Go(func() error { return serveHTTP(ctx, "--health-addr", o.health, health(s.Ready)) })
	}
	err = all.Wait()
	log.Info("ended")
	return err
}

// newServer makes the agent of the options.
func (o *options) newServer(log logr.Logger) (*server.Server, error) {
	clusters, err := o.all()
	if err != nil {
		return nil, err
	}
	so := &o.server
	so.Log, so.Metrics = log, server.NewMetrics()
	for _, c := range clusters {
		config, err := clusterConfig(c.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		command, err := c.command()
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		so.Clusters = append(so.Clusters, server.Cluster{Cluster: c.Cluster, Client: client, Runner: &provisioner.Program{Command: command, Log: log}})
	}
	if err := o.keep(); err != nil {
		return nil, err
	}
	return server.New(*so)
}

// keep makes what the agent itself keeps things in: the cluster that it runs in, or a folder.
func (o *options) keep() error {
	so := &o.server
	if o.storeFolder != "" {
		so.Store = &server.FileStore{Folder: o.storeFolder}
	}
	if o.storeFolder != "" && o.noStates {
		return nil
	}
	config, err := clusterConfig(o.cluster.Kubeconfig)
	if err != nil {
		return fmt.Errorf("the cluster that the agent runs in: %w", err)
	}
	if so.Store == nil {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		so.Store = &server.ConfigMapStore{Client: client, Namespace: o.namespace, Name: o.storeName}
	}
	if !o.noStates {
		so.States, err = dynamic.NewForConfig(config)
	}
	return err
}

// metrics for Prometheus.
func metrics(m *server.Metrics) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(m.Collectors(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// health for the kubelet.
func health(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "it has not yet read what was begun, or is about to end", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, flag, address string, handler http.Handler) error {
	s := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := context.AfterFunc(ctx, func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(within)
	})
	defer ended()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
