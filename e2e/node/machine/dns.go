package machine

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterDomain is the domain of the names of Services.
const clusterDomain = "cluster.local"

// queryTimeout bounds the request for a Service; a client waits at least as long.
const queryTimeout = 5 * time.Second

// nameServer answers the queries of pods for the addresses of Services, and for nothing else.
type nameServer struct {
	services client.Reader
	conn     net.PacketConn
	done     chan struct{}
}

func startNameServer(services client.Reader) (*nameServer, error) {
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(Address.String(), "53"))
	if err != nil {
		return nil, err
	}
	s := &nameServer{services: services, conn: conn, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

// Close stops the server and waits until it has stopped.
func (s *nameServer) Close() error {
	err := s.conn.Close()
	<-s.done
	return err
}

func (s *nameServer) serve() {
	defer close(s.done)
	query := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if response, err := s.respond(query[:n]); err == nil {
			_, _ = s.conn.WriteTo(response, from)
		}
	}
}

// respond returns the response to a query: the address of the Service, no record of another type,
// or that there is no such name.
func (s *nameServer) respond(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Authoritative, m.RCode = true, true, dnsmessage.RCodeNameError
	m.Answers, m.Authorities, m.Additionals = nil, nil, nil
	if len(m.Questions) == 1 {
		q := m.Questions[0]
		if ip := s.find(q.Name.String()); ip != nil {
			m.RCode = dnsmessage.RCodeSuccess
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte(ip)}}}
			}
		}
	}
	return m.Pack()
}

// find returns the address of the Service with a name such as web.shop.svc.cluster.local; nil if
// there is none.
func (s *nameServer) find(name string) net.IP {
	service, isService := strings.CutSuffix(strings.ToLower(name), ".svc."+clusterDomain+".")
	own, namespace, found := strings.Cut(service, ".")
	if !isService || !found {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	var o corev1.Service
	if err := s.services.Get(ctx, types.NamespacedName{Namespace: namespace, Name: own},
		&o); err != nil {
		return nil
	}
	return net.ParseIP(o.Spec.ClusterIP).To4()
}
