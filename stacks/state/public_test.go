package state

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ruleNames returns the names that a rule matches.
func ruleNames(rule string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(rule, "(?m)^("), ")$"), "|")
}

// missingNames returns the names of public values that a rule does not match.
func missingNames(rule string, tree any) (out []string) {
	for _, l := range leaves(tree) {
		name := l.path[len(l.path)-1]
		if !publicNames[name] {
			name = versionsKey
		}
		if l.isPublic() && !slices.Contains(ruleNames(rule), name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A value that a later release adds is not public. A public name that is also on the path of such a
// value is omitted from the rule.
func TestUnencryptedRegexOmitsUnknownValues(t *testing.T) {
	for doc, c := range map[string]struct {
		// closed are the pointers of the values that the rule encrypts, missing the names of public
		// values that the rule does not match.
		closed, missing string
	}{
		`{"cluster_name":"a","vault":{"unseal":"x"},"n":[1,true],"none":null,"empty":""}`: {
			"/n/0 /n/1 /vault/unseal", ""},
		`{"cluster_name":"a","a/b":{"name":"x","seats":[{"ID":"y"}]},"addons":{"cni":{"name":"z"}}}`: {
			"/a~1b/name /a~1b/seats/0/ID /addons/cni/name", "name"},
		`{"versions":{"k3s":"1","etcd":"2"},"kubernetes_bootstrap_state":{"k3s":{"k3s_token":"x"}}}`: {
			"/kubernetes_bootstrap_state/k3s/k3s_token", ""},
		`{"versions":{"k3s":"1","talos":"x"}}`: {
			"/versions/k3s /versions/talos", "versions"},
		`{"owner":{"team":"x"},"platform":{"owner":"y","state":"z"}}`: {
			"/owner/team /platform/owner", "owner"},
		`{"cloud_infrastructure_state":{"moon":{"info_worker_planes":{"vm_sizes":["s"],"arn":["x"]}}}}`: {
			"/cloud_infrastructure_state/moon/info_worker_planes/arn/0", ""},
		`{"addons":{"apps":[{"components":{"owner":{"version":"1","key":"x"}}}]},"platform":{"owner":"me"}}`: {
			"/addons/apps/0/components/owner/key /platform/owner", "owner"},
		`{"cluster_name":"-----BEGIN PRIVATE KEY-----","region":"r"}`: {
			"/cluster_name", ""},
		`{"Clusters":[{"region":"r"}],"Credentials":[{"ID":"0","cloud_provider":"aws","aws":{"region":"x"}}]}`: {
			"/Clusters/0/region /Credentials/0/aws/region", "region"},
		`{"cloud_provider":"gcp","gcp":{"name":"x"}}`: {
			"/gcp/name", ""},
		`{"region":"r","nodes":1,"x\nregion\ny":{"name":"z"}}`: {
			"/region /x\nregion\ny/name", "region"},
		`{"nodes_unencrypted":"x","Name":"y"}`: {
			"/Name /nodes_unencrypted", ""},
	} {
		tree, err := decode([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		rule := unencryptedRegex(tree)
		if got := strings.Join(missingNames(rule, tree), " "); got != c.missing {
			t.Errorf("%s: the rule does not match %q, want %q", doc, got, c.missing)
		}
		if got := strings.Join(encryptedBy(rule, tree), " "); got != c.closed {
			t.Errorf("%s: the rule encrypts %q, want %q", doc, got, c.closed)
		}
	}
}

// encryptedBy returns the pointers of the values that SOPS encrypts with a rule.
func encryptedBy(rule string, tree any) (out []string) {
	fits := func(name string) bool { return rule != "" && regexp.MustCompile(rule).MatchString(name) }
	for _, l := range leaves(tree) {
		if l.text() != "" && !slices.ContainsFunc(l.path, fits) {
			out = append(out, l.pointer)
		}
	}
	return out
}

// In documents of the known releases, the rule matches every public name, and only these names
// remain encrypted.
func TestUnencryptedRegexInEveryDialect(t *testing.T) {
	closed := nameSet("cluster_kubeconfig", "private_key", "public_key", "PrivateKey", "UserName", "etcd_key",
		"etcd_cert", "ca_cert", "k3s_token", "ssh_usr", "ssh_id",
		"certificate_key", "bootstrap_token", "bootstrap_token_expire_time_utc", "discorvery_token_ca_cert_hash",
		"fwidcontrolplanenode", "fwidworkernode", "fwidloadbalancenode", "fwiddatabasenode", "clusternetworkid",
		"subnet_id", "virtual_network_id",
		"network_security_group_id", "network_interface_ids", "public_ip_ids", "kept")
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		rule := unencryptedRegex(tree)
		if got := missingNames(rule, tree); len(got) > 0 {
			t.Errorf("%s: the rule does not match %v", file, got)
		}
		for _, l := range leaves(tree) {
			if name := l.path[len(l.path)-1]; l.text() != "" && !l.isPublic() && !l.secret && !closed[name] {
				t.Errorf("%s: %s is encrypted", file, l.pointer)
			}
		}
		secret, err := SecretPointers(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range secret {
			if !slices.Contains(encryptedBy(rule, tree), at) {
				t.Errorf("%s: %s is readable", file, at)
			}
		}
	}
}
