// Package dynamodb_test runs dynamodb-partition against a server with the API of DynamoDB.
package dynamodb_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ksctl/gitops/e2e/dynamodb/dynalite"
)

var (
	server *dynalite.Server
	binary string
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if reasonToSkip() != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "dynalite")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err = dynalite.Install(context.Background(), dir); err != nil {
		return 0, err
	}
	if server, err = dynalite.Start(dir); err != nil {
		return 0, err
	}
	defer server.Stop()
	binary = filepath.Join(dir, "dynamodb-partition")
	// The same flags as in the other suites, so that the build cache is used.
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary,
		"github.com/ksctl/gitops/cmd/dynamodb-partition")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, errors.New(string(out))
	}
	return m.Run(), nil
}

func reasonToSkip() string {
	if testing.Short() {
		return "with -short, nothing is installed with npm"
	}
	return dynalite.MissingRequirement()
}

func needsServer(t *testing.T) {
	t.Helper()
	if reason := reasonToSkip(); reason != "" {
		t.Skip(reason)
	}
}

type result struct {
	DeletedItems int    `json:"deletedItems"`
	Message      string `json:"message"`
}

// command returns a run of the program that writes its result to a file.
func command(t *testing.T, table, value string, args ...string) (cmd *exec.Cmd, read func() result) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result")
	cmd = exec.CommandContext(t.Context(), binary, append([]string{"--table=" + table, "--partition-value=" + value,
		"--endpoint-url=http://" + server.Host, "--result=" + file}, args...)...)
	cmd.Env = []string{"AWS_ACCESS_KEY_ID=" + dynalite.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + dynalite.SecretAccessKey}
	return cmd, func() (out result) {
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(content, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

func create(t *testing.T, table string, items map[types.AttributeValue]int) {
	t.Helper()
	created := false
	for partition, n := range items {
		if !created {
			if err := server.CreateTable(t.Context(), table, partition); err != nil {
				t.Fatal(err)
			}
			created = true
		}
		if err := server.Fill(t.Context(), table, partition, n); err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, table string, partition types.AttributeValue) int {
	t.Helper()
	n, err := server.Count(t.Context(), table, partition)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }

func TestDeletesOnlyThePartition(t *testing.T) {
	needsServer(t)
	for name, tc := range map[string]struct {
		gone, stays types.AttributeValue
		value       string
		items       int
	}{
		"text": {text("c1"), text("c1 "), "c1", 10_000},
		"numbers": {&types.AttributeValueMemberN{Value: "12.5"}, &types.AttributeValueMemberN{Value: "125"}, "1.25e1",
			300},
		"binary": {&types.AttributeValueMemberB{Value: []byte{0, 255}}, &types.AttributeValueMemberB{Value: []byte{0}},
			"AP8=", 300},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, name, map[types.AttributeValue]int{tc.gone: tc.items, tc.stays: tc.items})
			cmd, read := command(t, name, tc.value)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := read(); got != (result{DeletedItems: tc.items}) {
				t.Errorf("result %+v", got)
			}
			if gone, stay := count(t, name, tc.gone), count(t, name, tc.stays); gone != 0 || stay != tc.items {
				t.Errorf("%d items of the partition and %d beside it", gone, stay)
			}
			again, read := command(t, name, tc.value)
			if out, err := again.CombinedOutput(); err != nil || read().DeletedItems != 0 {
				t.Errorf("an empty partition: %v\n%s", err, out)
			}
		})
	}
}

// holdBatch returns a server in front of the server that holds a batch, counted from 1, until
// release is closed. It closes arrived when it has the batch.
func holdBatch(t *testing.T, n int32, release <-chan struct{}) (url string, arrived <-chan struct{}) {
	t.Helper()
	got := make(chan struct{})
	var batches atomic.Int32
	forward := httputil.NewSingleHostReverseProxy(&neturl.URL{Scheme: "http", Host: server.Host})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".BatchWriteItem") && batches.Add(1) == n {
			close(got)
			<-release
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL, got
}

func TestRunAfterASignalDeletesTheRest(t *testing.T) {
	needsServer(t)
	const items = 5000
	create(t, "stopped", map[types.AttributeValue]int{text("c1"): items})
	release := make(chan struct{})
	url, arrived := holdBatch(t, 4, release)
	cmd, read := command(t, "stopped", "c1", "--concurrency=1", "--endpoint-url="+url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
	case <-time.After(2 * time.Minute):
		t.Fatal("the program sends no fourth batch")
	}
	err := cmd.Process.Signal(syscall.SIGTERM)
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Fatal(err)
	}
	first, left := read(), count(t, "stopped", text("c1"))
	if !strings.HasPrefix(first.Message, "a signal stopped the run") || left == 0 || first.DeletedItems > items-left {
		t.Errorf("%+v, and %d items are left", first, left)
	}
	second, read := command(t, "stopped", "c1")
	if out, err := second.CombinedOutput(); err != nil || read().DeletedItems != left {
		t.Errorf("%v: deleted %d of %d\n%s", err, read().DeletedItems, left, out)
	}
}

func TestExitStatus(t *testing.T) {
	needsServer(t)
	create(t, "statuses", map[types.AttributeValue]int{&types.AttributeValueMemberN{Value: "1"}: 1})
	create(t, "bytes", map[types.AttributeValue]int{&types.AttributeValueMemberB{Value: []byte("x")}: 1})
	for name, tc := range map[string]struct {
		table, value string
		args         []string
		status       int
		message      string
	}{
		"no such table":      {"missing", "1", nil, 2, "table missing does not exist: check the name of the table"},
		"no number":          {"statuses", "one", nil, 2, "table statuses: reading the keys: ValidationException: "},
		"no base64":          {"bytes", "one", nil, 2, "table bytes: the partition key customer is binary"},
		"server unreachable": {"statuses", "1", []string{"--endpoint-url=http://127.0.0.1:1"}, 1, "table statuses: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, read := command(t, tc.table, tc.value, tc.args...)
			out, _ := cmd.CombinedOutput()
			got := read()
			if cmd.ProcessState.ExitCode() != tc.status || !strings.HasPrefix(got.Message, tc.message) {
				t.Errorf("status %d, %+v\n%s", cmd.ProcessState.ExitCode(), got, out)
			}
		})
	}
}
