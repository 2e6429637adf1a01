package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ksctl/gitops/e2e/tools"
)

// Names of files in the run's folder that the programs read.
const (
	caFile             = "ca.crt"
	servingCertFile    = "apiserver.crt"
	servingKeyFile     = "apiserver.key"
	serviceAccountFile = "service-account.key"
)

const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // of the Service kubernetes: the first of the range
)

func (c *Cluster) etcdURL() string {
	return "http://" + loopback(c.etcdPort.number)
}

func (c *Cluster) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.run.path("etcd"),
		"--listen-client-urls=" + c.etcdURL(),
		"--advertise-client-urls=" + c.etcdURL(),
		"--listen-peer-urls=http://127.0.0.1:0",
		"--socket-reuse-port=true",
		// The data need not survive a power failure, and most of a write's time is fsync.
		"--unsafe-no-fsync=true",
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + c.etcdURL(),
		"--bind-address=127.0.0.1",
		// Without the flag the API server looks for a default route, which not every machine has.
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.apiPort.number),
		"--permit-port-sharing=true",
		"--tls-cert-file=" + c.run.path(servingCertFile),
		"--tls-private-key-file=" + c.run.path(servingKeyFile),
		"--client-ca-file=" + c.run.path(caFile),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceCIDR,
		// The API server refuses loopback endpoints for the Service kubernetes.
		"--endpoint-reconciler-type=none",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.run.path(serviceAccountFile),
		"--service-account-signing-key-file=" + c.run.path(serviceAccountFile),
		// API Priority and Fairness stays on, as in any cluster. These two flags are its total
		// concurrency (600 by default, of which most clients get a fifth). They are raised so that
		// a slow machine alone causes no 429, and a suite counts the requests it expects.
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		// Above zero, the API server ends its watches on SIGTERM. Otherwise it waits a minute for
		// its clients to end them.
		"--shutdown-watch-termination-grace-period=5s",
	}
	if c.opts.Audit {
		args = append(args, c.auditArgs()...)
	}
	return append(args, c.opts.APIServerFlags...)
}

// StartAPIServer starts the API server after [Cluster.StopAPIServer], on the same port and with the
// same data, and returns when it is ready. Clients have lost their watches by then. The audit log
// continues in the same file.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiServer != nil {
		return errors.New("starting the API server: it is running")
	}
	var err error
	c.apiServerStarted = time.Now()
	if c.apiServer, err = c.launchTool(tools.APIServer, c.apiServerArgs()); err != nil {
		return err
	}
	return Await(ctx, "the API server to become ready", startTimeout, c.readyz, c.apiServer, c.etcd)
}

// readyz returns nil if the API server is ready, which includes etcd and the built-in roles.
func (c *Cluster) readyz(ctx context.Context) error {
	return c.clientset.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// launchTool starts a program of the control plane in the run's folder.
func (c *Cluster) launchTool(name string, args []string) (*Process, error) {
	return c.Launch(name, c.binaries[name], c.run.dir, args)
}

// StopAPIServer stops the API server and leaves all other programs running. Connections are refused
// until [Cluster.StartAPIServer].
func (c *Cluster) StopAPIServer() error {
	return end(&c.apiServer, "stopping the API server", (*Process).stop)
}

// KillAPIServer ends the API server by SIGKILL, as a crash would: requests in flight get no answer.
// All other programs keep running, as after [Cluster.StopAPIServer].
func (c *Cluster) KillAPIServer() error {
	return end(&c.apiServer, "killing the API server", (*Process).kill)
}

// StopEtcd ends etcd by SIGTERM and leaves all other programs running. The API server can't read or
// write until [Cluster.StartEtcd]. No data is lost.
func (c *Cluster) StopEtcd() error { return end(&c.etcd, "stopping etcd", (*Process).stop) }

// KillEtcd is like [Cluster.StopEtcd], by SIGKILL.
func (c *Cluster) KillEtcd() error { return end(&c.etcd, "killing etcd", (*Process).kill) }

// end ends a program. doing describes that in an error.
func end(program **Process, doing string, do func(*Process) error) error {
	p := *program
	if p == nil {
		return fmt.Errorf("%s: it is not running", doing)
	}
	*program = nil
	if err := do(p); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// StartEtcd starts etcd after [Cluster.StopEtcd], on the same port and with the same data, and
// returns when the API server is ready again.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	if c.etcd != nil {
		return errors.New("starting etcd: it is running")
	}
	var err error
	if c.etcd, err = c.launchTool(tools.Etcd, c.etcdArgs()); err != nil {
		return err
	}
	return Await(ctx, "the API server to reconnect to etcd", startTimeout, c.readyz, c.etcd, c.apiServer)
}
