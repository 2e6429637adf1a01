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

// CloudConfig returns the configuration of the provider externalgrpc in YAML: the address of the
// node group server, the directory of the TLS files, and the timeout of a call.
func CloudConfig(address, tlsDir string, timeout time.Duration) string {
	var out strings.Builder
	for _, line := range [][2]string{
		{"address", strconv.Quote(address)}, // an IPv6 address begins with a bracket
		{"cacert", path.Join(tlsDir, "ca.crt")},
		{"cert", path.Join(tlsDir, "tls.crt")},
		{"grpc_timeout", timeout.String()},
		{"key", path.Join(tlsDir, "tls.key")},
	} {
		fmt.Fprintf(&out, "%s: %s\n", line[0], line[1])
	}
	return out.String()
}

// NodeGroup is a node group with the priority of its pool.
type NodeGroup struct {
	ID       string
	Priority int32
}

// NodeGroups returns the node groups of a KsctlAutoScaler, one per pool.
func NodeGroups(as *clusterv1.KsctlAutoScaler) []NodeGroup {
	out := make([]NodeGroup, 0, len(as.Spec.Pools))
	for i := range as.Spec.Pools {
		p := &as.Spec.Pools[i]
		out = append(out, NodeGroup{ID: nodegroup.GroupID(types.NamespacedName{Namespace: as.Namespace, Name: as.Name}, p.Name), Priority: p.Priority})
	}
	return out
}

// PrioritiesYAML returns the configuration of the expander Priority: the IDs of the node groups by
// their priority, highest first. It must list all groups: Cluster Autoscaler selects a group that
// is not listed only if no other group fits.
func PrioritiesYAML(groups []NodeGroup) string {
	sorted := slices.Clone(groups)
	slices.SortFunc(sorted, func(a, b NodeGroup) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	var out strings.Builder
	for i, g := range sorted {
		if i == 0 || sorted[i-1].Priority != g.Priority {
			fmt.Fprintf(&out, "%d:\n", g.Priority) // must be a YAML number, not a string
		}
		// Entries are regular expressions without anchors, so they are anchored here.
		fmt.Fprintf(&out, "- '^%s$'\n", strings.ReplaceAll(regexp.QuoteMeta(g.ID), "'", "''"))
	}
	return out.String()
}

// ConfigHash returns a hash of the settings that Cluster Autoscaler reads only at startup: its
// flags and its files. Pools are not part of it, because Cluster Autoscaler rereads them.
func ConfigHash(spec *clusterv1.KsctlAutoScalerSpec, in Inputs) string {
	sum := sha256.New()
	for _, f := range Flags(spec, in) {
		hashPart(sum, []byte(f))
	}
	hashPart(sum, []byte(CloudConfig(in.Address, TLSDir, CallTimeout)))
	for _, s := range []string{imageRepository(spec), in.Version, in.KubeConfigSecret, in.KubeConfigKey, in.KubeConfigRevision, in.ClientSecret} {
		hashPart(sum, []byte(s))
	}
	for _, c := range in.Certificates {
		hashPart(sum, c)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// hashPart writes data with its length as prefix, so that adjacent parts never run together.
func hashPart(sum hash.Hash, data []byte) {
	_, _ = fmt.Fprintf(sum, "%d:", len(data))
	_, _ = sum.Write(data)
}

// imageRepository returns the image without a tag.
func imageRepository(spec *clusterv1.KsctlAutoScalerSpec) string {
	if spec.Autoscaler == nil || spec.Autoscaler.Image == "" {
		return DefaultImage
	}
	return spec.Autoscaler.Image
}
