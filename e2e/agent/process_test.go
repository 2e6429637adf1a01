package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// process is a process of the shipped agent.
type process struct {
	address, health, metrics string
	log                      string
	cmd                      *exec.Cmd
	done                     chan struct{}
	err                      error // exit error; read after done
}

// startProcess runs the agent with its shipped permissions.
func startProcess(ctx context.Context, folder string, flags ...string) *process {
	GinkgoHelper()
	p := &process{done: make(chan struct{})}
	for _, at := range []*string{&p.address, &p.health, &p.metrics} {
		address, err := cluster.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		*at = address
	}
	log, err := os.CreateTemp(folder, "log-")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = log.Close() }() // the child has its own copy
	p.log = log.Name()
	p.cmd = exec.Command(binary,
		append([]string{"serve", "--listen=" + p.address, "--health-addr=" + p.health, "--metrics-addr=" + p.metrics,
			"--log-format=text"}, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, folder
	p.cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + folder, "PATH=" + os.Getenv("PATH")}
	p.cmd.SysProcAttr = cluster.ChildAttributes()
	started := make(chan error)
	// The kernel kills the child when the thread that started it ends.
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	Expect(<-started).To(Succeed())
	return p
}

// awaitReady waits until the agent is ready for requests.
func (p *process) awaitReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		select {
		case <-p.done:
			return StopTrying(fmt.Sprintf("the agent ended: %v; its log:\n%s", p.err, p.logs()))
		default:
		}
		_, err := httpGet(ctx, "http://"+p.health+"/readyz")
		return err
	}).WithTimeout(soon).WithPolling(20 * time.Millisecond).Should(Succeed())
}

func httpGet(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK && err == nil {
		err = errors.New(res.Status)
	}
	return string(body), errors.Join(err, res.Body.Close())
}

// logs returns the log of the agent.
func (p *process) logs() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// kill ends the agent like a loss of power.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop sends SIGTERM and returns the exit error. It kills an agent that does not end in time.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(soon):
		p.kill()
		return fmt.Errorf("the agent did not end within %s", soon)
	}
}

// provisioners returns the running processes that the agent of the cluster has started.
func (r *testCluster) provisioners() []string {
	GinkgoHelper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	var out []string
	for _, path := range entries {
		data, err := os.ReadFile(path)
		if line := strings.ReplaceAll(string(data), "\x00", " "); err == nil && strings.Contains(line, " provision ") &&
			strings.Contains(line, r.config) {
			out = append(out, line)
		}
	}
	return out
}

func (r *testCluster) connect() *grpc.ClientConn {
	GinkgoHelper()
	conn, err := grpc.NewClient(r.agent.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = conn.Close() })
	return conn
}

func (r *testCluster) workers() agentpb.WorkersClient { return agentpb.NewWorkersClient(r.connect()) }

// begin starts an operation with machines of the size medium.
func (r *testCluster) begin(ctx context.Context, id string, current, desired uint32) {
	GinkgoHelper()
	_, err := r.workers().Begin(ctx, &agentpb.BeginRequest{Id: id, Current: current, Desired: desired, Size: "medium"})
	Expect(err).NotTo(HaveOccurred())
}

// run starts an operation and waits until it ends.
func (r *testCluster) run(ctx context.Context, id string, current, desired uint32) *agentpb.Operation {
	GinkgoHelper()
	r.begin(ctx, id, current, desired)
	return r.await(ctx, id, current, desired)
}

// await waits until a started operation ends.
func (r *testCluster) await(ctx context.Context, id string, current, desired uint32) *agentpb.Operation {
	GinkgoHelper()
	workers := r.workers()
	var out *agentpb.Operation
	Eventually(ctx, func() (agentpb.Operation_State, error) {
		res, err := workers.Begin(ctx,
			&agentpb.BeginRequest{Id: id, Current: current, Desired: desired, Size: "medium"})
		out = res.GetOperation()
		return out.GetState(), err
	}).WithTimeout(soon).WithPolling(50*time.Millisecond).ShouldNot(Equal(agentpb.Operation_RUNNING), r.agent.logs())
	return out
}

// HaveSucceeded matches a successful operation.
func HaveSucceeded() types.GomegaMatcher {
	return WithTransform((*agentpb.Operation).GetState, Equal(agentpb.Operation_SUCCEEDED))
}

// HaveFailed matches an operation that failed with a failure and a message with a text.
func HaveFailed(failure agentpb.Operation_Failure, message string) types.GomegaMatcher {
	return And(WithTransform((*agentpb.Operation).GetState, Equal(agentpb.Operation_FAILED)),
		WithTransform((*agentpb.Operation).GetFailure, Equal(failure)),
		WithTransform((*agentpb.Operation).GetMessage, ContainSubstring(message)))
}
