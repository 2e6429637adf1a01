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
		Short: "Serve the gRPC API and scale clusters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(o.logLevel, o.logFormat)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), log)
		},
	}
	o.bindFlags(cmd.Flags())
	return cmd
}

// newLogger returns a logger that writes to standard error.
func newLogger(level, format string) (logr.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	handlerOptions := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, handlerOptions)), nil
	case "text":
		return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, handlerOptions)), nil
	}
	return logr.Logger{}, fmt.Errorf("--log-format %q: want json or text", format)
}

// run runs the agent until ctx ends.
func (o *options) run(ctx context.Context, log logr.Logger) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := o.newServer(log)
	if err != nil {
		return err
	}
	if !o.plaintext {
		o.serve.Identity = &o.identity
	}
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	log.Info("serving gRPC", "version", version.String(), "address", listener.Addr().String(), "plaintext", o.plaintext,
		"certificates", o.identity.ClientCAFile != "", "tokens", o.identity.TokenFile != "")
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	group.Go(func() error {
		defer cancel()
		return s.Serve(ctx, listener, o.serve)
	})
	if o.metrics != "" {
		group.Go(func() error { return serveHTTP(ctx, "--metrics-addr", o.metrics, metrics(o.server.Metrics)) })
	}
	if o.health != "" {
		group.Go(func() error { return serveHTTP(ctx, "--health-addr", o.health, health(s.Ready)) })
	}
	err = group.Wait()
	log.Info("stopped")
	return err
}

// newServer returns the gRPC server that the options describe.
func (o *options) newServer(log logr.Logger) (*server.Server, error) {
	clusters, err := o.loadClusters()
	if err != nil {
		return nil, err
	}
	so := &o.server
	so.Log, so.Metrics = log, server.NewMetrics()
	for _, c := range clusters {
		cluster, err := c.newCluster(log)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		so.Clusters = append(so.Clusters, cluster)
	}
	if err := o.setUpStores(); err != nil {
		return nil, err
	}
	return server.New(*so)
}

func (c clusterOptions) newCluster(log logr.Logger) (server.Cluster, error) {
	client, err := newClient(c.Kubeconfig)
	if err != nil {
		return server.Cluster{}, err
	}
	command, err := c.provisionerCommand()
	return server.Cluster{Cluster: c.Cluster, Client: client, Runner: &provisioner.Program{Command: command, Log: log}},
		err
}

// setUpStores sets the store of operations, which is a folder or a ConfigMap of the cluster that
// the agent runs in, and the client of ksctl's state store in that cluster.
func (o *options) setUpStores() error {
	so := &o.server
	if o.storeDir != "" {
		so.Store = &server.FileStore{Dir: o.storeDir}
	}
	if o.storeDir != "" && o.noStates {
		return nil
	}
	config, err := restConfig(o.cluster.Kubeconfig)
	if err != nil {
		return fmt.Errorf("loading the configuration of the agent's own cluster: %w", err)
	}
	if so.Store == nil {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		so.Store = &server.ConfigMapStore{Client: client, Namespace: o.namespace, Name: o.storeName}
	}
	if !o.noStates {
		so.StatesClient, err = dynamic.NewForConfig(config)
	}
	return err
}

// metrics serves m and the metrics of the Go runtime and the process at /metrics.
func metrics(m *server.Metrics) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(m.Collectors(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// health serves the kubelet's probes: /healthz always succeeds, /readyz while ready returns true.
func health(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the recorded operations are not loaded yet, or the agent is shutting down",
				http.StatusServiceUnavailable)
		}
	})
	return mux
}

// serveHTTP serves until ctx ends, and then gives running requests 5 seconds to finish. flag is the
// name of the flag that errors mention.
func serveHTTP(ctx context.Context, flag, address string, handler http.Handler) error {
	s := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stopShutdown := context.AfterFunc(ctx, func() {
		shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(shutdownCtx)
	})
	defer stopShutdown()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
