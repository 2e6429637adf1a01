package proxy

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/e2e/cluster"
)

// Rule defines a fault for some requests.
type Rule struct {
	// When are conditions that a request must all meet. None: every request.
	When []cluster.RequestFilter
	// Chance that a request is affected, from 0 to 1; 0 means always. Of the requests with
	// the same verb and resource, at most maxConsecutive are affected before one is spared.
	Chance float64
	// Times is the maximum number of affected requests; 0 means no limit.
	Times int
	// Do handles the request.
	Do Fault

	affected int // number of affected requests
}

// maxConsecutive limits chance: the backoff of a client doubles with each failure, so that
// without a limit no timeout of a test would be long enough.
const maxConsecutive = 3

// Fault handles a request instead of the API server. next forwards it to the API server.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Proxy forwards requests to an API server, with faults. Its methods are safe for concurrent use.
type Proxy struct {
	server   *httptest.Server
	upstream http.Handler

	mu          sync.Mutex
	random      *rand.Rand
	rules       []Rule
	inFlight    map[*inFlightRequest]bool
	consecutive map[requestKind]int // faults since a request was spared
	faults      int                 // number of faults
	observe     func(cluster.Request)
}

// requestKind identifies requests that count as consecutive.
type requestKind struct{ verb, group, resource string }

// inFlightRequest is a request that has no response yet.
type inFlightRequest struct {
	request cluster.Request
	cancel  context.CancelFunc
}

// New starts a proxy for an API server. The seed determines which requests are affected.
func New(target *rest.Config, seed uint64) (*Proxy, error) {
	to, err := url.Parse(target.Host)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the API server: %w", err)
	}
	// Requests have the client's credentials, so the target's are dropped.
	transport, err := rest.TransportFor(&rest.Config{Host: target.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: target.CAData}})
	if err != nil {
		return nil, fmt.Errorf("creating a transport to the API server: %w", err)
	}
	p := &Proxy{random: rand.New(rand.NewPCG(seed, 0)), inFlight: map[*inFlightRequest]bool{},
		consecutive: map[requestKind]int{}}
	quiet := log.New(io.Discard, "", 0) // aborted requests are expected
	p.upstream = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = quiet
	p.server.StartTLS()
	return p, nil
}

// Config returns a client configuration that goes through the proxy.
func (p *Proxy) Config(client *rest.Config) *rest.Config {
	c := rest.CopyConfig(client)
	c.Host = p.server.URL
	c.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return c
}

// Set replaces the rules. The first matching rule applies to a request.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.Clone(rules)
}

// Watch calls f with each request before any fault; nil ends that. f is called by the goroutine
// of the request, which waits for it.
func (p *Proxy) Watch(f func(cluster.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe = f
}

// FaultCount returns the number of faults so far.
func (p *Proxy) FaultCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Cut aborts requests in flight that meet the conditions, such as watches, and returns their
// number.
func (p *Proxy) Cut(when ...cluster.RequestFilter) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for f := range p.inFlight {
		if f.request.Meets(when...) {
			f.cancel()
			n++
		}
	}
	return n
}

// Disconnect closes every connection, with all its requests.
func (p *Proxy) Disconnect() { p.server.CloseClientConnections() }

// Close ends the proxy and all requests in flight.
func (p *Proxy) Close() {
	p.Set()
	p.Cut()
	p.server.CloseClientConnections()
	p.server.Close()
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &inFlightRequest{request: parse(r), cancel: cancel}
	p.mu.Lock()
	p.inFlight[f] = true
	seen := p.observe
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.inFlight, f)
	}()
	if seen != nil {
		seen(f.request)
	}
	r = r.WithContext(ctx)
	if do := p.fault(f.request); do != nil {
		do(w, r, p.upstream)
		return
	}
	p.upstream.ServeHTTP(w, r)
}

// fault returns the fault for a request; nil for none.
func (p *Proxy) fault(q cluster.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := requestKind{verb: q.Verb, group: q.Group, resource: q.Resource}
	for i := range p.rules {
		r := &p.rules[i]
		if !q.Meets(r.When...) || r.Times > 0 && r.affected == r.Times || r.Chance > 0 &&
			(p.consecutive[to] >= maxConsecutive || p.random.Float64() >= r.Chance) {
			continue
		}
		r.affected++
		p.faults++
		p.consecutive[to]++
		return r.Do
	}
	p.consecutive[to] = 0
	return nil
}
