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
	"sync"

	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/e2e/cluster"
)

// Rule says what happens to some requests.
type Rule struct {
	// When all of these are met. None: every request.
	When []cluster.Condition
	// Chance that it happens to a request, from 0 to 1; 0 means always. Of
	// requests with one verb and resource it hits inARow at most before it spares one.
	Chance float64
	// Times that it happens at most; 0 means without end.
	Times int
	// Do is what happens.
	Do Fault
}

// inARow is where chance ends: the waits of a client that is hit without end
// double without end, and no wait for it would be long enough.
const inARow = 3

// Fault handles a request in place of the API server; next is the way to it.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Proxy is one. Its methods may be called from several goroutines at once.
type Proxy struct {
	server *httptest.Server
	forth  http.Handler

	mu      sync.Mutex
	random  *rand.Rand
	rules   []*rule
	flights map[*flight]bool
	row     map[alike]int // faults since one was spared
	done    int           // faults so far
	seen    func(cluster.Request)
}

type rule struct {
	Rule
	left int // of Times
}

// alike is what requests that count as a row have in common.
type alike struct{ verb, group, resource string }

// flight is a request on its way.
type flight struct {
	request cluster.Request
	cancel  context.CancelFunc
}

// New starts a proxy before an API server. Chances are drawn from the seed.
func New(target *rest.Config, seed uint64) (*Proxy, error) {
	to, err := url.Parse(target.Host)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	// The client's credentials count, so the target's are left behind.
	transport, err := rest.TransportFor(&rest.Config{Host: target.Host, TLSClientConfig: rest.TLSClientConfig{CAData: target.CAData}})
	if err != nil {
		return nil, fmt.Errorf("a way to the API server: %w", err)
	}
	p := &Proxy{random: rand.New(rand.NewPCG(seed, 0)), flights: map[*flight]bool{}, row: map[alike]int{}}
	quiet := log.New(io.Discard, "", 0) // requests that end in the middle are what it is for
	p.forth = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = quiet
	p.server.StartTLS()
	return p, nil
}

// Config is a client's configuration with the way through the proxy.
func (p *Proxy) Config(client *rest.Config) *rest.Config {
	c := rest.CopyConfig(client)
	c.Host = p.server.URL
	c.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return c
}

// Set replaces the rules. The first one that a request meets is done.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
	for _, r := range rules {
		p.rules = append(p.rules, &rule{Rule: r, left: r.Times})
	}
}

// Watch has f called with each request before anything happens to it; nil ends
// that. It is called by the requests' goroutines, which wait for it.
func (p *Proxy) Watch(f func(cluster.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = f
}

// Faults is how many were done so far.
func (p *Proxy) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Cut ends requests that are on their way, such as watches, in the middle, and
// returns how many.
func (p *Proxy) Cut(when ...cluster.Condition) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for f := range p.flights {
		if meets(f.request, when) {
			f.cancel()
			n++
		}
	}
	return n
}

// Disconnect closes every connection, whatever is on its way on it.
func (p *Proxy) Disconnect() { p.server.CloseClientConnections() }

// Close ends the proxy and everything that is on its way.
func (p *Proxy) Close() {
	p.Set()
	p.Cut()
	p.server.CloseClientConnections()
	p.server.Close()
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &flight{request: parse(r), cancel: cancel}
	p.mu.Lock()
	p.flights[f] = true
	seen := p.seen
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.flights, f)
	}()
	if seen != nil {
		seen(f.request)
	}
	r = r.WithContext(ctx)
	if do := p.fault(f.request); do != nil {
		do(w, r, p.forth)
		return
	}
	p.forth.ServeHTTP(w, r)
}

// fault is what is to be done to a request; nil for nothing.
func (p *Proxy) fault(q cluster.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := alike{verb: q.Verb, group: q.Group, resource: q.Resource}
	for _, r := range p.rules {
		if !meets(q, r.When) || r.Times > 0 && r.left == 0 || r.Chance > 0 && (p.row[to] >= inARow || p.random.Float64() >= r.Chance) {
			continue
		}
		r.left--
		p.done++
		p.row[to]++
		return r.Do
	}
	p.row[to] = 0
	return nil
}

func meets(q cluster.Request, when []cluster.Condition) bool {
	for _, c := range when {
		if !c(q) {
			return false
		}
	}
	return true
}
