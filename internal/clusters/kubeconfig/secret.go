package kubeconfig

// defaultKeys are the keys of a Secret in which Flux looks for a kubeconfig, in this order.
// https://fluxcd.io/flux/components/kustomize/kustomizations/#kubeconfig-remote-clusters
var defaultKeys = []string{"value", "value.yaml"}

// FromSecret returns the kubeconfig in the data of a Secret, and its key. It looks at the key
// wanted, or at Flux's default keys if wanted is empty. If there is none, the kubeconfig is nil,
// and key is the one that should hold it.
func FromSecret(data map[string][]byte, wanted string) (key string, config []byte) {
	if wanted != "" {
		return wanted, data[wanted]
	}
	for _, key := range defaultKeys {
		if config, ok := data[key]; ok {
			return key, config
		}
	}
	return defaultKeys[0], nil
}
