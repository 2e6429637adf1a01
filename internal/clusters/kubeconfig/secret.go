package kubeconfig

// keys of a Secret are where Flux looks for a kubeconfig, in this order.
// https://fluxcd.io/flux/components/kustomize/kustomizations/#kubeconfig-remote-clusters
var keys = []string{"value", "value.yaml"}

// FromSecret finds a kubeconfig in the data of a Secret: at a key or, where that is empty, at
// those that Flux looks at. Without one, the key is that which should have it, and the
// kubeconfig nil.
func FromSecret(data map[string][]byte, wanted string) (key string, config []byte) {
	if wanted != "" {
		return wanted, data[wanted]
	}
	for _, key := range keys {
		if config, ok := data[key]; ok {
			return key, config
		}
	}
	return keys[0], nil
}
