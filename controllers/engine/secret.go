package engine

import (
	"encoding/base64"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// foldStringData moves the stringData of a Secret into data. The API server does so, too, but then
// no field manager owns the keys in data, so that changes by others would not be detected.
func foldStringData(it *plan.Item, obj map[string]any) {
	plain, ok := obj["stringData"].(map[string]any)
	if it.Group != "" || it.Kind != "Secret" || !ok {
		return
	}
	data := nestedObject(obj, "data")
	for k, v := range plain {
		s, ok := v.(string)
		if !ok {
			return // the API server reports the error
		}
		data[k] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	delete(obj, "stringData")
}
