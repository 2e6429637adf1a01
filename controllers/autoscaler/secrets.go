package autoscaler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// memoTime is how long a Secret is used before it is read again: that the account may not read it
// any more is noticed, too.
const memoTime = 5 * time.Minute

// memo is a Secret as it was read last.
type memo struct {
	version string
	at      time.Time
	secret  *corev1.Secret
}

// secret reads a Secret with an account's rights, when it has changed, and now and then: nodes change
// far more often.
func (s *Steps) secret(ctx context.Context, here *engine.Client, key, name types.NamespacedName) (*corev1.Secret, bool, error) {
	version, now := s.revision(ctx, name), s.Clock.Now()
	if m := s.board.memo(key, name.Name); version != "" && m.version == version && now.Sub(m.at) < memoTime {
		return m.secret, true, nil
	}
	var out corev1.Secret
	found, err := engine.Read(ctx, here, secretsResource, name.Namespace, name.Name, &out)
	if err != nil || !found {
		return &out, found, err
	}
	s.board.keepMemo(key, name.Name, memo{version: out.ResourceVersion, at: now, secret: &out})
	return &out, true, nil
}

func (b *board) memo(key types.NamespacedName, name string) memo {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.card(key).memos[name]
}

func (b *board) keepMemo(key types.NamespacedName, name string, m memo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.card(key)
	if c.memos == nil {
		c.memos = map[string]memo{}
	}
	c.memos[name] = m
}

// revision of a Secret as the cache has it.
func (s *Steps) revision(ctx context.Context, name types.NamespacedName) string {
	meta := reconcile.Metadata("", "Secret")
	if err := s.Client.Get(ctx, name, meta); err != nil {
		return ""
	}
	return meta.ResourceVersion
}
