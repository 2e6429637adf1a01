package settings

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// CloudConfig returns the configuration of the provider externalgrpc in YAML. address is the
// address of the node group server.
func CloudConfig(address string) string {
	// The address is quoted because an IPv6 address begins with a bracket.
	return fmt.Sprintf("address: %[1]q\ncacert: %[2]s/ca.crt\ncert: %[2]s/tls.crt\ngrpc_timeout: %[3]s\nkey: "+
		"%[2]s/tls.key\n", address, TLSDir, callTimeout)
}

// prioritiesYAML returns the configuration of the expander Priority: the IDs of the node groups by
// the priority of their pools, highest first. It must list all groups: Cluster Autoscaler selects a
// group that is not listed only if no other group fits.
func prioritiesYAML(as *clusterv1.KsctlAutoScaler) string {
	pools := slices.SortedFunc(slices.Values(as.Spec.Pools), func(a, b clusterv1.WorkerPool) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	var out strings.Builder
	for i := range pools {
		p := &pools[i]
		if i == 0 || pools[i-1].Priority != p.Priority {
			fmt.Fprintf(&out, "%d:\n", p.Priority) // must be a YAML number, not a string
		}
		// Entries are regular expressions without anchors, so they are anchored here.
		id := nodegroup.GroupID(types.NamespacedName{Namespace: as.Namespace, Name: as.Name}, p.Name)
		fmt.Fprintf(&out, "- '^%s$'\n", strings.ReplaceAll(regexp.QuoteMeta(id), "'", "''"))
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
	hashPart(sum, []byte(CloudConfig(in.Address)))
	for _, s := range []string{imageRepository(spec), in.Version, in.KubeConfigSecret, in.KubeConfigKey,
		in.KubeConfigRevision, in.ClientSecret} {
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
	return cmp.Or(deployment(spec).Image, DefaultImage)
}
