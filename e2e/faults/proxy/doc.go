// Package proxy is a proxy between a client and the API server, which injects the faults that
// networks, load balancers and API servers cause.
//
//	p, err := proxy.New(plane.Config(), seed)
//	...
//	defer p.Close()
//	client := p.Config(theClients)
//	p.Set(proxy.Rule{
//		When: []cluster.RequestFilter{cluster.Write}, Chance: 0.3, Do: proxy.TooManyRequests(time.Second),
//	})
//
// It terminates TLS with a certificate of its own and forwards requests unchanged, so that the
// API server sees the client's token and impersonation headers. It can't forward client
// certificates: clients need a token.
package proxy
