// Package registry is the registry of the Workers system: the registry of the project distribution,
// with its content in a folder, which also deletes content that no tag refers to.
package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd" // the kind of authentication
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/distribution/distribution/v3/registry/storage"
	"github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// Options are the options of a registry.
type Options struct {
	// Dir is the folder with the content.
	Dir string
	// HtpasswdFile has the users, with passwords hashed by bcrypt. If it is "", everybody may pull
	// and push.
	HtpasswdFile string
	// WriteTimeout bounds the wait of a collection for requests that write.
	WriteTimeout time.Duration
	// UploadAge is the age at which a collection deletes an upload that did not end.
	UploadAge time.Duration
	Log       *slog.Logger
}

// Default values of options.
const (
	DefaultDir          = "/var/lib/registry"
	DefaultWriteTimeout = time.Minute
	DefaultUploadAge    = 24 * time.Hour
)

// Registry is a registry. It is safe for concurrent use, but no other process may use its folder.
type Registry struct {
	Options

	app     *handlers.App
	driver  driver.StorageDriver
	content distribution.Namespace
	writes  writes
	// collecting is locked during a collection.
	collecting sync.Mutex
}

// New opens a registry. Close it after its last request.
func New(ctx context.Context, o Options) (*Registry, error) {
	// A collection needs the folders of the storage, which the first push creates.
	for _, folder := range []string{"repositories", "blobs"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, "docker/registry/v2", folder), 0o700); err != nil {
			return nil, fmt.Errorf("creating the folders of the registry: %w", err)
		}
	}
	parameters := configuration.Parameters{"rootdirectory": o.Dir}
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": parameters,
			"delete":     configuration.Parameters{"enabled": true},
			// A cache would have content that a collection deleted, so there is none. Collections
			// purge uploads.
			"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		},
		HTTP: configuration.HTTP{Secret: rand.Text()},
	}
	config.Catalog.MaxEntries = 1000
	if o.HtpasswdFile != "" {
		// The library creates a missing file, with a password that it logs.
		if _, err := os.Stat(o.HtpasswdFile); err != nil {
			return nil, fmt.Errorf("reading the users: %w", err)
		}
		config.Auth = configuration.Auth{"htpasswd": {"realm": "worker-registry", "path": o.HtpasswdFile}}
	}
	files, err := filesystem.FromParameters(parameters)
	if err != nil {
		return nil, err
	}
	content, err := storage.NewRegistry(ctx, files)
	if err != nil {
		return nil, err
	}
	app := handlers.NewApp(context.WithoutCancel(ctx), config)
	return &Registry{Options: o, app: app, driver: files, content: content}, nil
}

// Close releases what the registry uses.
func (r *Registry) Close() error { return r.app.Shutdown() }

// ServeHTTP serves the API of the registry, and /readyz. During a collection it refuses requests
// that write.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.URL.Path == "/readyz" || req.URL.Path == "/healthz":
		r.serveHealth(w)
		return
	case req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions:
	case !r.writes.begin():
		refuseWrite(w)
		return
	default:
		defer r.writes.end()
	}
	r.app.ServeHTTP(w, req)
}

// serveHealth responds that the registry is ready if its folder can be read.
func (r *Registry) serveHealth(w http.ResponseWriter) {
	if _, err := os.ReadDir(r.Dir); err != nil {
		r.Log.Error("the folder of the registry cannot be read", "error", err.Error())
		http.Error(w, "the folder of the registry cannot be read", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Collect deletes manifests without a tag, what only they refer to, and old uploads. It waits for
// running requests that write, and further ones are refused until it ends. Reads go on.
func (r *Registry) Collect(ctx context.Context) error {
	r.collecting.Lock()
	defer r.collecting.Unlock()
	wait, cancel := context.WithTimeout(ctx, r.WriteTimeout)
	defer cancel()
	if err := r.writes.block(wait); err != nil {
		return fmt.Errorf("collecting garbage: requests that write did not end: %w", err)
	}
	defer r.writes.unblock()
	start := time.Now()
	err := storage.MarkAndSweep(ctx, r.driver, r.content, storage.GCOpts{RemoveUntagged: true, Quiet: true})
	purged, purgeErrs := storage.PurgeUploads(ctx, r.driver, time.Now().Add(-r.UploadAge), true)
	if err := errors.Join(append(purgeErrs, err)...); err != nil {
		return fmt.Errorf("collecting garbage: %w", err)
	}
	r.Log.Info("collected garbage", "duration", time.Since(start).Round(time.Millisecond).String(),
		"uploads", len(purged))
	return nil
}
