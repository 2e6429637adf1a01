package expr

import (
	"fmt"
	"testing"
)

func TestClusterPaths(t *testing.T) {
	for source, want := range map[string]string{
		`1`:                                   "[]",
		`cluster.labels.env`:                  "[[labels env]]",
		`cluster.labels['a.b/c-d']`:           "[[labels a.b/c-d]]",
		`cluster.?labels.?env.orValue('')`:    "[[labels env]]",
		`cluster.?labels[?'a.b'].orValue('')`: "[[labels a.b]]",
		`has(cluster.facts.region) ? cluster.facts.region : cluster.name`: "[[facts region] [facts region] [name]]",
		`cluster`: "[[]]", `dyn(cluster)`: "[[]]", `{'a': cluster.facts}`: "[[facts]]",
		`cluster.labels.exists(k, k == 'a')`:                   "[[labels]]",
		`cluster.labels[stack.zone]`:                           "[[labels]]",
		`cluster.facts.pools[0].size`:                          "[[facts pools]]",
		`cluster.facts.pools.map(p, p.count)`:                  "[[facts pools]]",
		`[1].map(i, cluster.name)`:                             "[[name]]",
		`cluster.name == 'a' && 'b' in cluster.facts.versions`: "[[name] [facts versions]]",
		`cluster.name.startsWith('a')`:                         "[[name]]",
		`[cluster.kubernetesVersion, namespace]`:               "[[kubernetesVersion]]",
	} {
		x, err := compiler(t).Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := fmt.Sprint(x.ClusterPaths()); got != want {
			t.Errorf("%s: got %s, want %s", source, got, want)
		}
	}
}

func TestCluster(t *testing.T) {
	cluster := map[string]any{"name": "prod", "labels": map[string]any{"env": "eu"},
		"facts": map[string]any{"pools": []any{map[string]any{"count": int64(3)}}}}
	for source, want := range map[string][2]any{
		`cluster.?labels.?env.orValue('none')`:                      {"eu", "none"},
		`cluster.?name.orValue('none')`:                             {"prod", "none"},
		`has(cluster.facts) ? cluster.facts.pools[0].count + 1 : 0`: {int64(4), int64(0)},
		`has(cluster.labels.other)`:                                 {false, nil},
		`cluster.labels.env`:                                        {"eu", nil},
	} {
		x, err := compiler(t).Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		for i, c := range []map[string]any{cluster, nil} {
			got, err := x.Eval(t.Context(), Variables{Cluster: c})
			if (err != nil) != (want[i] == nil) || err == nil && got != want[i] {
				t.Errorf("%s of %v: got %v, %v; want %v", source, c, got, err, want[i])
			}
		}
	}
	for _, source := range []string{`cluster.region`, `cluster.labels.env + 1`, `cluster.facts.pools[0].count + 'x'`} {
		if _, err := compiler(t).Compile(source); err == nil {
			t.Errorf("%s compiles", source)
		}
	}
}
