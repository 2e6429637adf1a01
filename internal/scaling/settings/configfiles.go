package settings

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// CloudConfig is the YAML that tells the provider externalgrpc where the node group server
// is, in which folder the files for TLS are, and how long to wait for an answer.
func CloudConfig(address, tlsFolder string, timeout time.Duration) string {
	var out strings.Builder
	for _, line := range [][2]string{
		{"address", strconv.Quote(address)}, // one of IPv6 begins with a bracket
		{"cacert", path.Join(tlsFolder, "ca.crt")},
		{"cert", path.Join(tlsFolder, "tls.crt")},
		{"grpc_timeout", timeout.String()},
		{"key", path.Join(tlsFolder, "tls.key")},
	} {
		fmt.Fprintf(&out, "%s: %s\n", line[0], line[1])
	}
	return out.String()
}

// Group is a node group and the priority of its pool.
type Group struct {
	ID       string
	Priority int32
}

// Groups of a KsctlAutoScaler.
func Groups(as *clusterv1.KsctlAutoScaler) []Group {
	out := make([]Group, 0, len(as.Spec.Pools))
	for i := range as.Spec.Pools {
		p := &as.Spec.Pools[i]
		out = append(out, Group{ID: nodegroup.GroupID(types.NamespacedName{Namespace: as.Namespace, Name: as.Name}, p.Name), Priority: p.Priority})
	}
	return out
}

// Priorities is the YAML that the expander Priority reads: the ids of groups by their priority,
// the highest first. All groups have to be in it: one that is not is used only where no other fits.
func Priorities(groups []Group) string {
	sorted := slices.Clone(groups)
	slices.SortFunc(sorted, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	var out strings.Builder
	for i, g := range sorted {
		if i == 0 || sorted[i-1].Priority != g.Priority {
			fmt.Fprintf(&out, "%d:\n", g.Priority) // it has to be a number, not a text
		}
		// They are regular expressions that may match anywhere in an id.
		fmt.Fprintf(&out, "- '^%s$'\n", strings.ReplaceAll(regexp.QuoteMeta(g.ID), "'", "''"))
	}
	return out.String()
}

// Hash is of all that Cluster Autoscaler reads only when it starts: its flags, and its files.
func Hash(spec *clusterv1.KsctlAutoScalerSpec, in Inputs) string {
	sum := sha256.New()
	for _, f := range Flags(spec, in) {
		part(sum, []byte(f))
	}
	part(sum, []byte(CloudConfig(in.Address, TLSFolder, CallTimeout)))
	for _, s := range []string{image(spec), in.Version, in.KubeConfigSecret, in.KubeConfigKey, in.KubeConfigRevision, in.ClientSecret} {
		part(sum, []byte(s))
	}
	for _, c := range in.Certificates {
		part(sum, c)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// part is told from the next one by its length.
func part(sum hash.Hash, data []byte) {
	_, _ = fmt.Fprintf(sum, "%d:", len(data))
	_, _ = sum.Write(data)
}

// image without its tag.
func image(spec *clusterv1.KsctlAutoScalerSpec) string {
	if spec.Autoscaler == nil || spec.Autoscaler.Image == "" {
		return DefaultImage
	}
	return spec.Autoscaler.Image
}
