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

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// authoritySecret is the Secret in the controller's namespace with the authority that Cluster
// Autoscaler and the node group server know each other by.
const authoritySecret = "ksctl-gitops-nodegroup-ca"

const (
	// renewInterval is how often it is looked at whether a certificate is to be renewed.
	renewInterval = time.Hour
	// againInterval is how soon that is tried again which failed.
	againInterval = 5 * time.Second
)

// Provider has the certificates of the node group server. It is run by a manager, while it leads.
type Provider struct {
	// Client reads from and writes to the API server, with the controller's own rights.
	Client client.Client
	// Namespace of the controller.
	Namespace string
	// Address is what Cluster Autoscaler is told: <host>:<port>. "": nothing is served.
	Address string
	Clock   clock.WithTicker
	Log     logr.Logger
	// Changed is called when there is another authority.
	Changed func()

	// wake has a value when its Secret has changed.
	wake chan struct{}

	mu        sync.RWMutex
	authority *pki.Authority
	server    *pki.Pair
	err       error
}

// Start implements manager.Runnable.
func (p *Provider) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := renewInterval
		changed, err := p.renew(ctx)
		if err != nil {
			wait = againInterval
			p.Log.Error(err, "no certificate for the node group server yet", "retryAfter", wait.String())
		}
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		if changed {
			p.Changed()
		}
		timer := p.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-p.wake:
		}
		timer.Stop()
	}
	return nil
}

// look has the Secret looked at, if it is the one that has the authority.
func (p *Provider) look(secret client.Object) {
	if secret.GetNamespace() != p.Namespace || secret.GetName() != authoritySecret {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// renew makes what is missing or due.
func (p *Provider) renew(ctx context.Context) (changed bool, err error) {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		return false, fmt.Errorf("--nodegroup-adv-addr %q: want <host>:<port>", p.Address)
	}
	name := types.NamespacedName{Namespace: p.Namespace, Name: authoritySecret}
	var secret corev1.Secret
	err = p.Client.Get(ctx, name, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return false, fmt.Errorf("secret %s: %w", name, err)
	}
	now := p.Clock.Now()
	authority, write, err := pki.Keep(secret.Data, now)
	if err != nil {
		return false, fmt.Errorf("secret %s: %w; delete it to have it made anew", name, err)
	}
	if write {
		if secret.Data, err = authority.Data(); err != nil {
			return false, err
		}
		if missing {
			secret.Namespace, secret.Name = name.Namespace, name.Name
			err = p.Client.Create(ctx, &secret)
		} else {
			err = p.Client.Update(ctx, &secret)
		}
		if err != nil {
			return false, fmt.Errorf("secret %s: %w", name, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.authority == nil || !bytes.Equal(p.authority.Bundle(), authority.Bundle())
	subject := pki.Server(host)
	if p.server == nil || authority.Due(p.server, subject, now) {
		if p.server, err = authority.Issue(subject, now); err != nil {
			return false, err
		}
	}
	p.authority = authority
	return changed, nil
}

// Authority is the one that issues certificates, and Serving is nil when there is one.
func (p *Provider) Authority() *pki.Authority {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.authority
}

// Serving is why nothing is served; nil: it is, as far as certificates go.
func (p *Provider) Serving() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case p.Address == "":
		return reconcile.Fail(NotServingReason, "the controller runs without --nodegroup-addr and --nodegroup-adv-addr: no Cluster Autoscaler is answered")
	case p.err != nil && p.authority == nil:
		return reconcile.TryAgain(NotServingReason, "there is no certificate for the node group server: %w", p.err)
	case p.authority == nil:
		return reconcile.Wait(NotServingReason, "the certificates of the node group server are being made")
	}
	return nil
}

// Certificate is the one that the server shows now.
func (p *Provider) Certificate() (*tls.Certificate, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.server == nil {
		return nil, errNoCertificate
	}
	cert := p.server.TLS()
	return &cert, nil
}

// Clients are the authorities that clients may have their certificates from.
func (p *Provider) Clients() (*x509.CertPool, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.authority == nil {
		return nil, errNoCertificate
	}
	return p.authority.Pool(), nil
}

var errNoCertificate = errors.New("the node group server has no certificate yet")
