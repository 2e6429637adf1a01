package state

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namesOf a rule.
func namesOf(rule string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(rule, "(?m)^("), ")$"), "|")
}

// missing are names of what may be read that a rule is without.
func missing(rule string, tree any) (out []string) {
	for _, l := range leaves(tree) {
		name := l.names[len(l.names)-1]
		if !openNames[name] {
			name = versionsKey
		}
		if l.open() && !slices.Contains(namesOf(rule), name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// What a later release adds is not open, and takes no name along that it has in common.
func TestOpen(t *testing.T) {
	for doc, c := range map[string]struct {
		// closed are pointers of what may not be read, missing are names of what may be read that the rule is without.
		closed, missing string
	}{
		`{"cluster_name":"a","vault":{"unseal":"x"},"n":[1,true],"none":null,"empty":""}`:                      {"/n/0 /n/1 /vault/unseal", ""},
		`{"cluster_name":"a","a/b":{"name":"x","seats":[{"ID":"y"}]},"addons":{"cni":{"name":"z"}}}`:           {"/a~1b/name /a~1b/seats/0/ID /addons/cni/name", "name"},
		`{"versions":{"k3s":"1","etcd":"2"},"kubernetes_bootstrap_state":{"k3s":{"k3s_token":"x"}}}`:           {"/kubernetes_bootstrap_state/k3s/k3s_token", ""},
		`{"versions":{"k3s":"1","talos":"x"}}`:                                                                 {"/versions/k3s /versions/talos", "versions"},
		`{"owner":{"team":"x"},"platform":{"owner":"y","state":"z"}}`:                                          {"/owner/team /platform/owner", "owner"},
		`{"cloud_infrastructure_state":{"moon":{"info_worker_planes":{"vm_sizes":["s"],"arn":["x"]}}}}`:        {"/cloud_infrastructure_state/moon/info_worker_planes/arn/0", ""},
		`{"addons":{"apps":[{"components":{"owner":{"version":"1","key":"x"}}}]},"platform":{"owner":"me"}}`:   {"/addons/apps/0/components/owner/key /platform/owner", "owner"},
		`{"cluster_name":"-----BEGIN PRIVATE KEY-----","region":"r"}`:                                          {"/cluster_name", ""},
		`{"Clusters":[{"region":"r"}],"Credentials":[{"ID":"0","cloud_provider":"aws","aws":{"region":"x"}}]}`: {"/Clusters/0/region /Credentials/0/aws/region", "region"},
		`{"cloud_provider":"gcp","gcp":{"name":"x"}}`:                                                          {"/gcp/name", ""},
		`{"region":"r","nodes":1,"x\nregion\ny":{"name":"z"}}`:                                                 {"/region /x\nregion\ny/name", "region"},
		`{"nodes_unencrypted":"x","Name":"y"}`:                                                                 {"/Name /nodes_unencrypted", ""},
	} {
		tree, err := decode([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		rule := openRegex(tree)
		if got := strings.Join(missing(rule, tree), " "); got != c.missing {
			t.Errorf("%s: the rule is without %s, want %s", doc, got, c.missing)
		}
		if got := strings.Join(closedBy(rule, tree), " "); got != c.closed {
			t.Errorf("%s: got %s, want %s", doc, got, c.closed)
		}
	}
}

// closedBy are the pointers of what a rule does not open, as SOPS understands it.
func closedBy(rule string, tree any) (out []string) {
	fits := func(name string) bool { return rule != "" && regexp.MustCompile(rule).MatchString(name) }
	for _, l := range leaves(tree) {
		if l.text() != "" && !slices.ContainsFunc(l.names, fits) {
			out = append(out, l.at)
		}
	}
	return out
}

// In what the known releases write every open name can be read, and what is left is no more than this.
func TestClosedInEveryDialect(t *testing.T) {
	closed := set("cluster_kubeconfig", "private_key", "public_key", "PrivateKey", "UserName", "etcd_key", "etcd_cert", "ca_cert", "k3s_token", "ssh_usr", "ssh_id",
		"certificate_key", "bootstrap_token", "bootstrap_token_expire_time_utc", "discorvery_token_ca_cert_hash",
		"fwidcontrolplanenode", "fwidworkernode", "fwidloadbalancenode", "fwiddatabasenode", "clusternetworkid", "subnet_id", "virtual_network_id",
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
		rule := openRegex(tree)
		if got := missing(rule, tree); len(got) > 0 {
			t.Errorf("%s: the rule is without %v", file, got)
		}
		for _, l := range leaves(tree) {
			if name := l.names[len(l.names)-1]; l.text() != "" && !l.open() && !l.secret && !closed[name] {
				t.Errorf("%s: %s can't be read", file, l.at)
			}
		}
		secret, err := Secrets(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range secret {
			if !slices.Contains(closedBy(rule, tree), at) {
				t.Errorf("%s: %s can be read", file, at)
			}
		}
	}
}
