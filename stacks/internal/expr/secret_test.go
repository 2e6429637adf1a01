package expr

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const testPassword = "hunter2: [x]"

// secretVariables have secrets of several types.
func secretVariables() Variables {
	secret := func(name string, v any) *Secret { return NewSecret("stack."+name, v) }
	return Variables{Stack: map[string]any{"zone": secret("zone", testPassword), "count": secret("count", int64(4711))},
		Params: map[string]any{"on": NewSecret("params.on", true), "gone": "plain", "n": int64(1),
			"list": NewSecret("params.list", []any{testPassword}),
			"x":    base64.StdEncoding.EncodeToString([]byte("a: 1")),
			"limits": map[string]any{"cpu": NewSecret("params.limits.cpu",
				base64.StdEncoding.EncodeToString([]byte(testPassword)))}}}
}

func TestSecretsArePassedOnAsAWhole(t *testing.T) {
	for source, want := range map[string]any{
		`stack.zone`:                                       testPassword,
		`{'a': [stack.zone], 'b': params.n}`:               map[string]any{"a": []any{testPassword}, "b": int64(1)},
		`params.n == 1 ? stack.zone : ''`:                  testPassword,
		`stack.?zone.orValue('none')`:                      testPassword,
		`has(stack.zone) ? {'a': stack.zone} : {}`:         map[string]any{"a": testPassword},
		`params.limits`:                                    map[string]any{"cpu": "aHVudGVyMjogW3hd"},
		`base64.decode(params.limits.cpu)`:                 testPassword,
		`yaml.parse(stack.zone)`:                           map[string]any{"hunter2": []any{"x"}},
		`yaml.parse(base64.decode(params.limits.cpu))`:     map[string]any{"hunter2": []any{"x"}},
		`{'v': dyn(stack.zone)}`:                           map[string]any{"v": testPassword},
		`[1, 2].map(i, stack.zone)`:                        []any{testPassword, testPassword},
		`yaml.parse('a: [1, b]').a[0] + params.n`:          int64(2),
		`base64.decode(params.x)`:                          "a: 1",
		`yaml.parse(base64.decode(string(params.x))).a`:    int64(1),
		`yaml.parse('')`:                                   nil,
		`params.gone == 'plain' && params.n in [params.n]`: true,
	} {
		x, err := compiler(t).Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := x.Eval(t.Context(), secretVariables())
		if err != nil || !reflect.DeepEqual(Reveal(got), want) {
			t.Errorf("%s: got %v, %v; want %v", source, Reveal(got), err, want)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", got, got, got), "hunter2") {
			t.Errorf("%s: the result shows the value: %#v", source, got)
		}
	}
}

// Every other use of a secret is an error that has its name and not its value.
func TestSecretsCannotBeUsed(t *testing.T) {
	for _, source := range []string{
		`stack.zone + 'x'`, `'x' + stack.zone`, `stack.zone == 'a'`, `'a' != stack.zone`, `null == dyn(stack.zone)`,
		`stack.zone in ['a']`, `'a' in [stack.zone]`, `'a' in {'a': stack.zone}.map(k, stack.zone)`,
		`[stack.zone] == ['a']`, `['a'] == [stack.zone]`, `{'a': 'b'} == {'a': stack.zone}`,
		`sets.contains(['a'], [stack.zone])`, `size(stack.zone)`, `stack.zone.size()`, `stack.zone.startsWith('h')`,
		`stack.zone.matches('h.*')`, `stack.zone.contains('h')`, `string(stack.zone)`, `string(stack.count)`,
		`bytes(stack.zone)`, `base64.encode(bytes(stack.zone))`, `'%s'.format([stack.zone])`, `'%d'.format([stack.count])`,
		`stack.count + 1`, `stack.count > 1`, `-stack.count`, `math.greatest(stack.count, 1)`, `double(stack.count)`,
		`params.on ? 1 : 2`, `!params.on`, `params.list[0]`, `params.list.map(x, x)`, `params.list.exists(x, x == 'a')`,
		`params.list + []`, `yaml.parse(stack.zone).a`, `yaml.parse(stack.zone)['a']`,
		`{stack.zone: 1}`, `{'a': 1}[stack.zone]`, `[stack.zone, 'b'].join(',')`, `stack.zone.split('')`,
		`strings.quote(stack.zone)`, `stack.zone.lowerAscii()`, `stack.zone.replace('h', 'x')`, `stack.zone.charAt(0)`,
		`'a'.replace('a', stack.zone)`, `'hunter2'.startsWith(stack.zone)`, `json.encode(stack.zone)`,
		`json.encode([stack.zone])`, `[stack.zone].sort()`, `timestamp(stack.zone)`, `duration(stack.zone)`,
		`stack.zone < 'i'`, `int(stack.zone)`, `bool(stack.zone)`, `string(base64.decode(params.limits.cpu))`,
		`yaml.parse(base64.decode(stack.zone))`, `base64.decode(stack.zone)`, `lists.range(stack.count)`,
		`sha256(stack.zone)`, `sha256([stack.zone])`, `sha256({'a': {'b': params.list}})`, `sha256({stack.zone: 1})`,
		`sha256(stack)`, `sha256(yaml.parse(stack.zone))`, `sha256(base64.decode(params.limits.cpu))`,
		`dyn(stack.zone).a`, `[1][stack.count]`, `stack.zone.reverse()`, `params.list.flatten()`,
	} {
		x, err := compiler(t).Compile(source)
		if err != nil {
			if !strings.Contains(err.Error(), "undeclared") && !strings.Contains(err.Error(), "overload") {
				t.Errorf("%s: %v", source, err)
			}
			continue
		}
		got, err := x.Eval(t.Context(), secretVariables())
		if err == nil {
			t.Errorf("%s: got %#v", source, got)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "4711") ||
			!strings.Contains(err.Error(), "stack.") && !strings.Contains(err.Error(), "params.") {
			t.Errorf("%s: %v", source, err)
		}
	}
	if _, err := json.Marshal(secretVariables().Stack); err == nil {
		t.Error("a secret is encoded as JSON")
	}
}

// The advice about secrets stands beside the error of an expression that reads one, and no other.
func TestAdviceAboutSecrets(t *testing.T) {
	for source, want := range map[string]bool{
		`params.names[3]`: false, `params.x.a`: false, `int(params.gone)`: false, `cluster.name`: false,
		`params.n / (params.n - 1)`: false, `int(params.gone + version)`: false, `stack['storage-class']`: false,
		`stack.zone + 'x'`: true, `int(string(params.limits.cpu))`: true, `size(params.?limits.?cpu.orValue(''))`: true,
		`dyn(stack).gone`: true, `params.limits.memory`: false,
		`params.names.map(n, int(n) + stack.count)`: true,
	} {
		x, err := compiler(t).Compile(source)
		if err != nil {
			if !want {
				continue
			}
			t.Fatal(err)
		}
		_, err = x.Eval(t.Context(), func() Variables {
			v := secretVariables()
			v.Params["names"] = []any{"1"}
			return v
		}())
		if err == nil || strings.Contains(err.Error(), "from a Secret") != want {
			t.Errorf("%s: got %v", source, err)
		}
	}
}
