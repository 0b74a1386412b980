package quarry_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/quarrycache/quarry"

// arrows are the only imports inside the module: the picture in
// ARCHITECTURE.md, folder by folder. A new one is a design decision: it is
// drawn there and added here together.
var arrows = map[string][]string{
	".":                  {},
	"bench":              {"cluster", "meta", "server/store"},
	"cluster":            {"cluster/bucket", "cluster/link", "meta"},
	"cluster/bucket":     {},
	"cluster/control":    {"cluster/bucket"},
	"cluster/controller": {"cluster/bucket", "cluster/control"},
	"cluster/link":       {"meta"},
	"cmd/manual":         {},
	"cmd/quarry":         {"bench", "cluster", "cluster/bucket", "cluster/control", "cluster/controller", "cmd/manual", "meta"},
	"cmd/quarryd":        {"cluster/control", "cmd/manual", "server"},
	"lru":                {"slab"},
	"meta":               {},
	"server":             {"cluster/bucket", "cluster/link", "meta", "server/store"},
	"server/store":       {"lru", "slab"},
	"slab":               {},
}

// confined are imports that live in few places: folders, or a file.
var confined = map[string][]string{
	"unsafe":                         {"slab/unsafe.go"},
	"github.com/panjf2000/gnet":      {"server"},
	"go.etcd.io":                     {"cluster/control", "cluster/controller"},
	"go.etcd.io/etcd/server":         {"cluster/controller", "tests"},
	"github.com/coreos/etcd":         {},
	"github.com/bradfitz/gomemcache": {"tests"},
	"github.com/chromedp":            {"tests"},
}

// light are packages that are imported by others' programs, or have to stay
// small, and what must not come with them.
var light = map[string][]string{
	"cluster/bucket":  {"github.com/panjf2000/gnet", "go.etcd.io", "google.golang.org/grpc"},
	"cluster/link":    {"github.com/panjf2000/gnet", "go.etcd.io", "google.golang.org/grpc"},
	"cluster/control": {"go.etcd.io/etcd/server"},
	"server":          {"go.etcd.io"},
}

func TestLightPackagesBringLittle(t *testing.T) {
	for folder, heavy := range light {
		deps, err := exec.Command("go", "list", "-deps", "./"+folder).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", folder, err)
		}
		for dep := range strings.FieldsSeq(string(deps)) {
			for _, h := range heavy {
				if dep == h || strings.HasPrefix(dep, h+"/") {
					t.Errorf("%s brings %s", folder, dep)
				}
			}
		}
	}
}

// imports gives the imports of each Go file below the module's root.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || len(file) > 1 && file[0] == '.'):
			return filepath.SkipDir
		case d.IsDir() || path.Ext(file) != ".go":
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		files[file] = nil
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			files[file] = append(files[file], p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestImportsFollowThePicture(t *testing.T) {
	for file, imported := range imports(t) {
		folder := path.Dir(file)
		allowed, known := arrows[folder]
		if !known {
			t.Errorf("%s: the folder %s is not in the picture of ARCHITECTURE.md", file, folder)
			continue
		}
		if strings.HasSuffix(file, "_test.go") {
			continue // tests may look up
		}
		for _, p := range imported {
			if p != module && !strings.HasPrefix(p, module+"/") {
				continue
			}
			to := strings.TrimPrefix(strings.TrimPrefix(p, module), "/")
			if !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: the picture has no arrow from %s to %s", file, p, folder, to)
			}
		}
	}
}

func TestConfinedImports(t *testing.T) {
	for file, imported := range imports(t) {
		test := strings.HasSuffix(file, "_test.go")
		for _, p := range imported {
			for name, homes := range confined {
				if p != name && !strings.HasPrefix(p, name+"/") {
					continue
				}
				if slices.Contains(homes, file) || slices.Contains(homes, path.Dir(file)) || slices.Contains(homes, "tests") && test {
					continue
				}
				t.Errorf("%s imports %s, which lives in %s alone", file, p, strings.Join(homes, " and "))
			}
		}
	}
}

// TestPictureHasNoCycle keeps the picture one that can be read from the top.
func TestPictureHasNoCycle(t *testing.T) {
	var visit func(folder string, above []string)
	visit = func(folder string, above []string) {
		if slices.Contains(above, folder) {
			t.Fatalf("a cycle: %v", append(above, folder))
		}
		for _, to := range arrows[folder] {
			visit(to, append(slices.Clone(above), folder))
		}
	}
	for folder := range arrows {
		visit(folder, nil)
	}
}
