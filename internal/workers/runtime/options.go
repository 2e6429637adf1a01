// Package runtime is the entry point of the image of an account: it writes workerd's configuration
// for the workers of the account, and runs workerd.
//
// It owns the sockets and shares them with workerd, so that a new workerd, with changed Secrets,
// replaces the old one without a refused connection.
package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// Worker is a script of the image that serves a port.
type Worker struct {
	// Name is the name of the script, which is that of its folder.
	Name string `json:"name"`
	Port int    `json:"port"`
	// EnvPrefix is the prefix of the names of the Secret's keys; nil is workerd.DefaultPrefix.
	EnvPrefix *string `json:"envPrefix,omitempty"`
	// CompatibilityDate replaces that of the script, if it is not empty.
	CompatibilityDate string `json:"compatibilityDate,omitempty"`
	// Secret is true if the worker has a mounted Secret.
	Secret bool `json:"secret,omitempty"`
}

func (w Worker) prefix() string {
	if w.EnvPrefix == nil {
		return workerd.DefaultPrefix
	}
	return *w.EnvPrefix
}

// maxPort is the largest number of a port.
const maxPort = 65535

// ParseWorkers parses workers in JSON.
func ParseWorkers(content []byte) ([]Worker, error) {
	var out []Worker
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		return nil, fmt.Errorf("reading the list of workers: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("the list of workers is empty")
	}
	names, ports := map[string]bool{}, map[int]string{}
	for _, w := range out {
		err := errors.Join(workerd.CheckName(w.Name), workerd.CheckCompatibilityDate(w.CompatibilityDate))
		if err != nil {
			return nil, fmt.Errorf("worker %s: %w", w.Name, err)
		}
		switch {
		case names[w.Name]:
			return nil, fmt.Errorf("worker %s occurs twice", w.Name)
		case w.Port < 1 || w.Port > maxPort:
			return nil, fmt.Errorf("worker %s: port %d is not between 1 and %d", w.Name, w.Port, maxPort)
		case ports[w.Port] != "":
			return nil, fmt.Errorf("workers %s and %s have the same port %d", ports[w.Port], w.Name, w.Port)
		}
		names[w.Name], ports[w.Port] = true, w.Name
	}
	return out, nil
}

// Options are the options of Run.
type Options struct {
	Workers []Worker
	// Scripts and Secrets are folders with a folder for each worker.
	Scripts, Secrets string
	// Dir is a folder for workerd's configuration.
	Dir string
	// Workerd is the path of the program.
	Workerd string
	// Networks are those that scripts may connect to: public, private, local, or a CIDR.
	Networks []string
	// HealthAddr is the address of /healthz and /readyz.
	HealthAddr string
	// Drain is how long requests are served after Run's context ends. Grace is the time that
	// workerd has after that, or after a restart, to respond to requests.
	Drain, Grace time.Duration
	// Settle is how long a replaced workerd serves after the last connection that it gets, so that
	// each connection has had a request when it is closed.
	Settle time.Duration
	// StartTimeout is the time that workerd has to load all scripts.
	StartTimeout time.Duration
	// Poll is the interval at which Secrets are compared, and how long they must be unchanged.
	Poll time.Duration
	// MinBackoff and MaxBackoff are the delays before a workerd that ended is started again.
	MinBackoff, MaxBackoff time.Duration
	// HealthInterval is the time between two requests that check whether workerd responds, and
	// HealthTimeout bounds each of them. HealthFailures is the number of failed ones in a row after
	// which workerd is killed and started again.
	HealthInterval, HealthTimeout time.Duration
	HealthFailures                int
	Log                           *slog.Logger

	// listenHost is the host that workers listen on.
	listenHost string
}

// Default values of options.
const (
	DefaultSecrets      = "/secrets"
	DefaultDir          = "/tmp"
	DefaultHealthAddr   = ":8079"
	DefaultDrain        = 5 * time.Second
	DefaultGrace        = 10 * time.Second
	DefaultSettle       = time.Second
	DefaultStartTimeout = time.Minute
	DefaultPoll         = time.Second
	DefaultMinBackoff   = time.Second
	DefaultMaxBackoff   = 30 * time.Second
	// A computation of a script delays the response, and so does a slow node.
	DefaultHealthInterval = 2 * time.Second
	DefaultHealthTimeout  = 10 * time.Second
	DefaultHealthFailures = 3
)

// configuration returns what workerd is started with: the workers with their scripts, and the
// environment with their Secrets. Keys that cannot be used are logged.
func (o *Options) configuration() ([]workerd.Worker, []string, error) {
	var env []string
	out := make([]workerd.Worker, len(o.Workers))
	for i, w := range o.Workers {
		folder, err := filepath.Abs(filepath.Join(o.Scripts, w.Name))
		if err != nil {
			return nil, nil, err
		}
		script, err := workerd.ReadScript(folder)
		if err != nil {
			return nil, nil, fmt.Errorf("worker %s: %w", w.Name, err)
		}
		out[i] = workerd.Worker{Name: w.Name, Script: script, Folder: folder, CompatibilityDate: w.CompatibilityDate,
			Address: fmt.Sprintf("*:%d", w.Port)}
		if !w.Secret {
			continue
		}
		secret, err := workerd.ReadSecret(filepath.Join(o.Secrets, w.Name))
		if err != nil {
			return nil, nil, fmt.Errorf("worker %s: %w", w.Name, err)
		}
		// Variables have the number of the worker: workers may have equal prefixes and keys.
		bindings, values := secret.Bind(w.prefix(), fmt.Sprintf("SECRET_%d_", i))
		out[i].Bindings = bindings
		env = append(env, values...)
		for key, reason := range secret.Skipped {
			o.Log.Error("the script does not have a key of its Secret", "worker", w.Name, "key", key, "reason", reason)
		}
	}
	return out, env, nil
}

// secretVersions returns a text that changes when a Secret of a worker changes.
func (o *Options) secretVersions() string {
	var out bytes.Buffer
	for _, w := range o.Workers {
		if w.Secret {
			fmt.Fprintf(&out, "%s %q\n", w.Name, workerd.SecretVersion(filepath.Join(o.Secrets, w.Name)))
		}
	}
	return out.String()
}
