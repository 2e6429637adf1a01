package autoscaler

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// authoritySecret is the Secret in the controller's namespace with the certificate authority of the
// node group server and its clients.
const authoritySecret = "ksctl-gitops-nodegroup-ca"

const (
	// renewInterval is how often the certificates are checked for renewal.
	renewInterval = time.Hour
	// renewRetryInterval is the time after which a failed renewal is retried.
	renewRetryInterval = 5 * time.Second
)

// Certificates manages the certificates of the node group server. It is run by a manager, on the
// leader only.
type Certificates struct {
	// Client reads from and writes to the API server, with the controller's own permissions.
	Client client.Client
	// Namespace is the namespace of the controller.
	Namespace string
	// Address is the <host>:<port> at which Cluster Autoscaler reaches the server; "" if there is
	// no server.
	Address string
	Clock   clock.WithTicker
	Log     logr.Logger
	// OnAuthorityChange is called when the authority changes.
	OnAuthorityChange func()

	// secretChanged receives a value when authoritySecret has changed.
	secretChanged chan struct{}

	mu        sync.RWMutex
	authority *pki.Authority
	server    *pki.KeyPair
	err       error
}

// Start implements manager.Runnable.
func (p *Certificates) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := renewInterval
		changed, err := p.renew(ctx)
		if err != nil {
			wait = renewRetryInterval
			p.Log.Error(err, "failed to renew the certificates of the node group server", "retryAfter", wait.String())
		}
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		if changed {
			p.OnAuthorityChange()
		}
		timer := p.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-p.secretChanged:
		}
		timer.Stop()
	}
	return nil
}

// handleSecret triggers a renewal if the Secret is authoritySecret.
func (p *Certificates) handleSecret(secret client.Object) {
	if secret.GetNamespace() != p.Namespace || secret.GetName() != authoritySecret {
		return
	}
	select {
	case p.secretChanged <- struct{}{}:
	default:
	}
}

// renew creates or renews the authority and the server certificate, if they are missing or due.
// changed reports whether the authority changed.
func (p *Certificates) renew(ctx context.Context) (changed bool, err error) {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		return false, fmt.Errorf("--nodegroup-adv-addr %q: want <host>:<port>", p.Address)
	}
	name := types.NamespacedName{Namespace: p.Namespace, Name: authoritySecret}
	var secret corev1.Secret
	err = p.Client.Get(ctx, name, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return false, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	now := p.Clock.Now()
	authority, write, err := pki.EnsureAuthority(secret.Data, now)
	if err != nil {
		return false, fmt.Errorf("loading the authority of Secret %s: %w; delete the Secret to create a new authority",
			name, err)
	}
	if write {
		if secret.Data, err = authority.SecretData(); err != nil {
			return false, err
		}
		if missing {
			secret.Namespace, secret.Name = name.Namespace, name.Name
			err = p.Client.Create(ctx, &secret)
		} else {
			err = p.Client.Update(ctx, &secret)
		}
		if err != nil {
			return false, fmt.Errorf("writing Secret %s: %w", name, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.authority == nil || !bytes.Equal(p.authority.Bundle(), authority.Bundle())
	subject := pki.ServerSubject(host)
	if p.server == nil || authority.RenewalDue(p.server, subject, now) {
		if p.server, err = authority.Issue(subject, now); err != nil {
			return false, err
		}
	}
	p.authority = authority
	return changed, nil
}

// Authority returns the authority that issues certificates. It is not nil if ServingError returns
// nil.
func (p *Certificates) Authority() *pki.Authority {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.authority
}

// ServingError returns why Cluster Autoscalers cannot be served; nil if the certificates are ready.
func (p *Certificates) ServingError() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case p.Address == "":
		return reconcile.NewTerminalError(clusterv1.NotServingReason,
			"the controller runs without --nodegroup-addr and --nodegroup-adv-addr: requests of Cluster Autoscaler "+
				"are not served")
	case p.err != nil && p.authority == nil:
		return reconcile.NewTransientError(clusterv1.NotServingReason, "the node group server has no certificate: %w",
			p.err)
	case p.authority == nil:
		return reconcile.NewWaitingError(clusterv1.NotServingReason, appsv1.WaitReference{Type: appsv1.WaitResponse,
			Kind: "Certificate", Name: "node-group-server"},
			"the certificates of the node group server are being created")
	}
	return nil
}

// Certificate returns the current certificate of the server.
func (p *Certificates) Certificate() (*tls.Certificate, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.server == nil {
		return nil, errNoCertificate
	}
	cert := p.server.TLS()
	return &cert, nil
}

// ClientCAs returns the authorities that verify client certificates.
func (p *Certificates) ClientCAs() (*x509.CertPool, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.authority == nil {
		return nil, errNoCertificate
	}
	return p.authority.Pool(), nil
}

var errNoCertificate = errors.New("the node group server has no certificate yet")
