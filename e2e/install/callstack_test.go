package install_test

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// maxFunctions is the maximum number of functions of this module from the Reconcile of the kind to
// the request that applies a ConfigMap. Both sides of a go statement count.
const maxFunctions = 9

// traced is the name of the ConfigMap whose requests are traced.
const traced = "traced"

var applyTrace callTrace

// callTrace records the functions of this module that led to the last traced request, from the
// request to the Reconcile of the kind.
type callTrace struct {
	mu        sync.Mutex
	functions []string
}

// wrap returns a RoundTripper that records before it sends. It is a rest.Config's WrapTransport.
func (c *callTrace) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/"+traced) {
			functions := append(callers(), creatorFunctions()...)
			c.mu.Lock()
			c.functions = functions
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (c *callTrace) get() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.functions)
}

func (c *callTrace) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.functions = nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// callers returns the functions of this module on the stack of this goroutine.
func callers() (out []string) {
	pcs := make([]uintptr, 200)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		out = appendFunction(out, f.Function)
	}
	return out
}

// creatorFunctions returns the functions of this module on the stack of the goroutine that created
// this one.
func creatorFunctions() (out []string) {
	stacks := make([]byte, 16<<20)
	dump := string(stacks[:runtime.Stack(stacks, true)])
	own, _, _ := strings.Cut(dump, "\n\n")
	_, creator, _ := strings.Cut(own, " in goroutine ")
	creator, _, _ = strings.Cut(creator, "\n")
	_, dump, _ = strings.Cut(dump, "\ngoroutine "+creator+" ")
	dump, _, _ = strings.Cut(dump, "\n\n")
	for line := range strings.Lines(dump) {
		if end := strings.LastIndex(line, "("); end > 0 && !strings.HasPrefix(line, "\t") &&
			!strings.HasPrefix(line, "created by ") {
			out = appendFunction(out, line[:end])
		}
	}
	return out
}

// appendFunction appends a function of this module. RoundTrippers do not count, nor the functions
// that call the Reconcile of a kind, nor those of this test.
func appendFunction(functions []string, name string) []string {
	name, ours := strings.CutPrefix(name, "github.com/ksctl/gitops/")
	if !ours || strings.Contains(name, "RoundTrip") || strings.HasPrefix(name, "controllers/reconcile.") ||
		strings.HasPrefix(name, "e2e/") {
		return functions
	}
	return append(functions, name)
}

var _ = Describe("The apply of a changed ConfigMap", func() {
	It("is few functions away from the Reconcile of the kind", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap(traced, "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		applyTrace.reset()
		stack(ctx, ns, "main@sha1:2", configMap(traced, "2"))
		atRevision(ctx, in, "main@sha1:2")

		functions := applyTrace.get()
		AddReportEntry("functions", strings.Join(functions, "\n"))
		Expect(functions).To(ContainElement("controllers/install/rollout.(*Dispatcher).Reconcile"))
		Expect(len(functions)).To(BeNumerically("<=", maxFunctions), "%s", strings.Join(functions, "\n"))
	})
})
