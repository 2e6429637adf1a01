package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// withTimeout returns a context that ends with the test or after d.
func withTimeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// acceptAll returns an agent that accepts every export.
func acceptAll() *fakeAgent {
	return &fakeAgent{storage: func(context.Context, *agentpb.ReqStore) error { return nil }}
}

func TestImportOverTLS(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	cert, key := a.issue("agent.example", inOneHour())
	expired, expiredKey := a.issue("agent.example", time.Now().Add(-time.Minute))
	ours, oursKey := a.issue("controller", inOneHour())
	foreign, foreignKey := stranger.issue("controller", inOneHour())
	type secret = map[string][]byte
	mutual := secret{CAKey: a.ca(), CertKey: ours, KeyKey: oursKey}
	token := secret{CAKey: a.ca(), TokenKey: []byte("s3cr3t-t0k3n\n")}
	for what, c := range map[string]struct {
		server []grpc.ServerOption
		name   string
		secret secret
		says   string // substring of the error; "": no error
	}{
		"mutual TLS": {[]grpc.ServerOption{serverTLS(t, cert, key, a)}, "", mutual, ""},
		"serverName": {[]grpc.ServerOption{serverTLS(t, cert, key, a)}, "agent.example", mutual, ""},
		"token": {[]grpc.ServerOption{serverTLS(t, cert, key, nil), requireToken("s3cr3t-t0k3n")}, "",
			token, ""},
		"wrong serverName": {[]grpc.ServerOption{serverTLS(t, cert, key, a)}, "other.example", mutual,
			"its certificate is not valid for the host name"},
		"expired certificate": {[]grpc.ServerOption{serverTLS(t, expired, expiredKey, a)}, "", mutual,
			"its certificate has expired"},
		"unknown CA": {[]grpc.ServerOption{serverTLS(t, cert, key, a)}, "",
			secret{CAKey: stranger.ca(), CertKey: ours, KeyKey: oursKey},
			"signed by an authority that ca.crt does not contain"},
		"no client certificate": {[]grpc.ServerOption{serverTLS(t, cert, key, a)}, "", token,
			"it rejects the TLS connection"},
		"untrusted client cert": {[]grpc.ServerOption{serverTLS(t, cert, key, a)}, "",
			secret{CAKey: a.ca(), CertKey: foreign, KeyKey: foreignKey}, "it rejects the TLS connection"},
		"wrong token": {[]grpc.ServerOption{serverTLS(t, cert, key, nil), requireToken("an0th3r")}, "",
			token, "the agent answers Unauthenticated: the token is not an0th3r"},
		"server without TLS": {nil, "", mutual, "the server does not speak TLS"},
		"error quotes the token": {[]grpc.ServerOption{serverTLS(t, cert, key, nil),
			requireToken("s3cr3t-t0k3n and more")}, "", token, "the token is not … and more"},
		"missing token": {[]grpc.ServerOption{serverTLS(t, cert, key, a), requireToken("s3cr3t-t0k3n")}, "",
			mutual, "the agent answers Unauthenticated"},
	} {
		client := dial(t, appsv1.AgentEndpoint{Address: serve(t, acceptAll(), c.server...), ServerName: c.name},
			c.secret)
		for range 2 { // the result is the same each time
			err := client.Import(withTimeout(t, time.Minute), []byte(`{"Clusters":[],"Credentials":null}`))
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: got %v, want %q", what, err, c.says)
			}
		}
	}
}

func TestImportPlaintext(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var got *agentpb.ReqStore
	c := dialPlaintext(t, &fakeAgent{storage: func(_ context.Context, r *agentpb.ReqStore) error {
		got = r
		return nil
	}})
	const export = `{"Clusters":[{"cluster_name":"demo"}],"Credentials":[null]}`
	if err := c.Import(withTimeout(t, time.Minute), []byte(export)); err != nil || string(got.GetData()) != export ||
		got.GetOperation() != agentpb.StorageOperation_IMPORT {
		t.Errorf("got %v, %v", got, err)
	}
	large := c.Import(t.Context(), make([]byte, MaxRequest))
	if large == nil || !strings.Contains(large.Error(), "nothing was sent") {
		t.Errorf("got %v", large)
	}
	if err := c.Import(withTimeout(t, time.Minute), make([]byte, MaxRequest-8)); err != nil {
		t.Errorf("a request of the maximum size: %v", err)
	}
}

func TestImportIPv6(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	_ = listener.Close()
	a := newAuthority(t)
	cert, key := a.issue("agent.example", inOneHour())
	at := serveAt(t, "[::1]:0", acceptAll(), serverTLS(t, cert, key, nil))
	secret := map[string][]byte{CAKey: a.ca(), TokenKey: []byte("t")}
	if err := dial(t, appsv1.AgentEndpoint{Address: at}, secret).
		Import(withTimeout(t, time.Minute), []byte("{}")); err != nil {
		t.Error(err)
	}
}

func TestImportAgentUnreachable(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	a := newAuthority(t)
	cert, key := a.issue("agent", inOneHour())
	for what, c := range map[string]struct {
		address string
		says    string
		code    codes.Code
		wait    time.Duration
	}{
		"nothing listens": {"127.0.0.1:1", "connection refused", codes.Unavailable, time.Minute},
		"no response": {silent.Addr().String(), "it does not answer in time", codes.DeadlineExceeded,
			2 * time.Second},
		"requires TLS": {serve(t, acceptAll(), serverTLS(t, cert, key, nil)), "", codes.Unavailable, time.Minute},
	} {
		err := dial(t, appsv1.AgentEndpoint{Address: c.address, Plaintext: true}, nil).
			Import(withTimeout(t, c.wait), []byte("{}"))
		failure, ok := errors.AsType[*Error](err)
		if !ok || failure.Answered || failure.Code != c.code ||
			!strings.Contains(err.Error(), "the agent can't be reached: "+c.says) {
			t.Errorf("%s: got %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), c.address) {
			t.Errorf("%s: the error holds the address, which differs each time: %v", what, err)
		}
	}
}

func TestImportDeadlineAndCancel(t *testing.T) {
	hangs := dialPlaintext(t, &fakeAgent{storage: func(ctx context.Context, _ *agentpb.ReqStore) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}})
	err := hangs.Import(withTimeout(t, 200*time.Millisecond), []byte("{}"))
	if failure, ok := errors.AsType[*Error](err); !ok || failure.Code != codes.DeadlineExceeded ||
		err.Error() != "the agent can't be reached: it does not answer in time" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if failure, ok := errors.AsType[*Error](hangs.Import(ctx, []byte("{}"))); !ok || failure.Code != codes.Canceled {
		t.Errorf("got %v", failure)
	}
}

func TestAgentMessagesAreSanitized(t *testing.T) {
	const export = `{"Clusters":[{"cluster_name":"demo","k3s_token":"K10-s3cr3t-of-k3s"}],"Credentials":[{"cloud_provider":"civo","civo":{"token":"s3cr3t-of-civo"}}]}`
	for says, want := range map[string]string{
		"no\nsuch\tthing\x00 \u202eon\r\n earth": "no such thing on earth",
		"":                                       "",
		`json: "k3s_token":"K10-s3cr3t-of-k3s"`:  "the message is omitted",
		"token s3cr3t-of-civo refused":           "the message is omitted",
		strings.Repeat("ä", 1000):                strings.Repeat("ä", 148) + "…",
	} {
		c := dialPlaintext(t, &fakeAgent{storage: func(context.Context, *agentpb.ReqStore) error {
			return status.Error(codes.Internal, says)
		}})
		err := c.Import(withTimeout(t, time.Minute), []byte(export))
		failure, ok := errors.AsType[*Error](err)
		if !ok || !failure.Answered || failure.Code != codes.Internal || !strings.HasPrefix(failure.Message, want) ||
			len(failure.Message) > maxMessageBytes || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%.60q: got %v", says, err)
		}
	}
	endless := dialPlaintext(t, &fakeAgent{storage: func(context.Context, *agentpb.ReqStore) error {
		return status.Error(codes.Internal, strings.Repeat("x", 10*maxHeaderBytes))
	}})
	if failure, ok := errors.AsType[*Error](endless.Import(withTimeout(t, time.Minute), []byte("{}"))); !ok ||
		len(failure.Message) > maxMessageBytes {
		t.Errorf("endless message: got %v", failure)
	}
}

func TestScale(t *testing.T) {
	var requested string
	updated, failure := true, error(nil)
	c := dialPlaintext(t, &fakeAgent{scale: func(_ context.Context, r *agentpb.ReqScale) (bool, error) {
		requested = fmt.Sprintf("%s %d %s", r.GetOperation(), r.GetDesiredNoOfWP(), r.GetNodeSizeOfWP())
		return updated, failure
	}})
	if err := c.Scale(withTimeout(t, time.Minute), true, 4, "g4s.kube.small"); err != nil ||
		requested != "SCALE_UP 4 g4s.kube.small" {
		t.Errorf("requested %s: %v", requested, err)
	}
	if err := c.Scale(withTimeout(t, time.Minute), false, 3, ""); err != nil || requested != "SCALE_DOWN 3 " {
		t.Errorf("requested %s: %v", requested, err)
	}
	for _, failure = range []error{nil, status.Error(codes.Unimplemented, "no worker was added")} {
		updated = failure != nil
		err := c.Scale(withTimeout(t, time.Minute), true, 5, "")
		if got, ok := errors.AsType[*Error](err); !ok || !got.Answered || failure != nil &&
			got.Code != codes.Unimplemented {
			t.Errorf("%v: got %v", failure, err)
		}
	}
}
