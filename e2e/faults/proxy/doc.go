// Package proxy stands between a client and the API server, and does to their
// requests what networks, load balancers and API servers in trouble do.
//
//	p, err := proxy.New(plane.Config(), seed)
//	...
//	defer p.Close()
//	client := p.Config(theClients)
//	p.Set(proxy.Rule{When: []cluster.Condition{cluster.Write}, Chance: 0.3, Do: proxy.TooManyRequests(time.Second)})
//
// It ends TLS with a certificate of its own and sends requests on as they are,
// so that the API server sees the client's token and whom it acts as. A client
// certificate can't be passed on: clients need a token.
package proxy
