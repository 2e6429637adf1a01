package proxy

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/ksctl/gitops/e2e/cluster"
)

// newTestProxy starts a proxy for a server that counts requests, and returns a client of it and
// the counter.
func newTestProxy(t *testing.T, handler http.HandlerFunc) (*Proxy, *kubernetes.Clientset, *atomic.Int64) {
	t.Helper()
	requests := &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p, err := New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c, err := kubernetes.NewForConfig(p.Config(&rest.Config{QPS: -1, BearerToken: "theirs",
		Impersonate: rest.ImpersonationConfig{UserName: "someone"}}))
	if err != nil {
		t.Fatal(err)
	}
	return p, c, requests
}

func namespace(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"n"}}`)
}

func TestProxyForwardsCredentials(t *testing.T) {
	_, c, _ := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer theirs" || r.Header.Get("Impersonate-User") != "someone" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		namespace(w, r)
	})
	if _, err := c.CoreV1().Namespaces().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	// The client retries some of these errors itself.
	for name, c := range map[string]struct {
		do    Fault
		asked int64
		want  func(error) bool
	}{
		"conflict":       {do: Conflict, want: apierrors.IsConflict},
		"internal error": {do: InternalError, want: apierrors.IsInternalError},
		"bad gateway":    {do: BadGateway, want: func(err error) bool { return err != nil }},
		"expired":        {do: Expired, want: apierrors.IsResourceExpired},
		"drop":           {do: Drop, want: func(err error) bool { return err != nil }},
		"lost response":  {do: LoseResponse, asked: 1, want: func(err error) bool { return err != nil }},
		"hang":           {do: Hang, want: func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		"delayed":        {do: Delay(time.Millisecond), asked: 1, want: func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			p, client, asked := newTestProxy(t, namespace)
			p.Set(Rule{When: []cluster.RequestFilter{cluster.Resource("namespaces"), cluster.Verb("patch")}, Do: c.do})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if name == "hang" {
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			_, err := client.CoreV1().Namespaces().Patch(ctx, "n", "application/merge-patch+json", []byte("{}"),
				metav1.PatchOptions{})
			if !c.want(err) || asked.Load() != c.asked {
				t.Errorf("error %v, and %d requests reached the server, want %d", err, asked.Load(), c.asked)
			}
			if _, err := client.CoreV1().Namespaces().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
				t.Errorf("a request that does not match the rule fails: %v", err)
			}
		})
	}
}

func TestTooManyRequestsIsRetried(t *testing.T) {
	p, client, asked := newTestProxy(t, namespace)
	p.Set(Rule{Times: 2, Do: TooManyRequests(0)})
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 1 || p.FaultCount() != 2 {
		t.Errorf("%d requests reached the server after %d faults", asked.Load(), p.FaultCount())
	}
}

func TestChanceIsReproducibleWithSeed(t *testing.T) {
	draw := func() (out []bool) {
		p, _, _ := newTestProxy(t, namespace)
		p.Set(Rule{Chance: 0.5, Do: Drop})
		for range 32 {
			out = append(out, p.fault(cluster.Request{}) != nil)
		}
		return out
	}
	first, second := draw(), draw()
	hits := 0
	for i := range first {
		if first[i] != second[i] {
			t.Fatal("the same seed leads to other faults")
		}
		if first[i] {
			hits++
		}
	}
	if hits == 0 || hits == len(first) {
		t.Errorf("%d of %d requests are affected", hits, len(first))
	}
}

func TestChanceSparesRequestAfterMaxConsecutive(t *testing.T) {
	p, _, _ := newTestProxy(t, namespace)
	p.Set(Rule{When: []cluster.RequestFilter{cluster.Watch}, Chance: 1, Do: Expired})
	for n := range 3 * (maxConsecutive + 1) {
		hit := p.fault(cluster.Request{Verb: "watch", Resource: "namespaces"}) != nil
		if want := n%(maxConsecutive+1) < maxConsecutive; hit != want {
			t.Errorf("request %d is affected: %t", n, hit)
		}
		if p.fault(cluster.Request{Verb: "list", Resource: "namespaces"}) != nil {
			t.Error("a list is affected")
		}
	}
	p.Set(Rule{Do: Expired})
	for range 2 * maxConsecutive {
		if p.fault(cluster.Request{Verb: "watch", Resource: "namespaces"}) == nil {
			t.Error("a rule without a chance is not applied")
		}
	}
}

func TestCutAndDisconnectEndWatches(t *testing.T) {
	p, client, _ := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for _, end := range map[string]func(){"cut": func() { p.Cut(cluster.Watch) }, "disconnect": p.Disconnect} {
		w, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := p.Cut(cluster.Verb("list")); n != 0 {
			t.Errorf("%d lists were cut", n)
		}
		end()
		for range w.ResultChan() { //nolint:revive // wait until it is closed
		}
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"GET /api/v1/namespaces":               "list namespaces by ",
		"GET /api/v1/namespaces?watch=true":    "watch namespaces by ",
		"GET /api/v1/namespaces/a":             "get namespaces named a by ",
		"PATCH /api/v1/namespaces/a/status":    "patch namespaces/status named a by ",
		"POST /api/v1/namespaces/a/configmaps": "create configmaps in a by ",
		"DELETE /apis/apps/v1/namespaces/a/deployments/b": "delete deployments.apps " +
			"in a named b by ",
		"DELETE /apis/apps/v1/namespaces/a/deployments": "deletecollection " +
			"deployments.apps in a by ",
		"PATCH /apis/apps.ksctl.com/v1/namespaces/a/ksctlinstalls/b/status": "patch " +
			"ksctlinstalls/status.apps.ksctl.com in a named b by ",
		"PUT /apis/rbac.authorization.k8s.io/v1/clusterroles/system:masters": "update " +
			"clusterroles.rbac.authorization.k8s.io named system:masters by ",
		"GET /apis/apps/v1":   "get /apis/apps/v1 by ",
		"GET /readyz?verbose": "get /readyz?verbose by ",
		"GET /apis/coordination.k8s.io/v1/namespaces/a/leases/b?fieldManager=x": "get leases.coordination.k8s.io " +
			"in a named b by ",
	} {
		method, uri, _ := strings.Cut(in, " ")
		got := parse(httptest.NewRequestWithContext(t.Context(), method, uri, nil)).String()
		if got, _, _ := strings.Cut(got, " →"); strings.TrimSpace(got)+" " != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}
