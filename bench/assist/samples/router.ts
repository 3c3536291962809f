// A small router for the browser: patterns such as /users/:id, and what they lead to.

export type Params = Record<string, string>;
export type Handler = (params: Params, query: URLSearchParams) => void;

interface Route {
  pattern: string;
  keys: string[];
  regex: RegExp;
  handler: Handler;
}

// Wandelt ein Muster in einen regulären Ausdruck um.
function compile(pattern: string): { regex: RegExp; keys: string[] } {
  const keys: string[] = [];
  const source = pattern
    .split("/")
    .map((part) => {
      // Ein Doppelpunkt leitet einen Parameter ein.
      if (part.startsWith(":")) {
        keys.push(part.slice(1));
        return "([^/]+)";
      }
      // Alles andere muss wörtlich passen.
      return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    })
    .join("/");
  return { regex: new RegExp(`^${source}/?$`), keys };
}

export class Router {
  private routes: Route[] = [];
  private fallback: Handler = () => {};

  on(pattern: string, handler: Handler): this {
    const { regex, keys } = compile(pattern);
    this.routes.push({ pattern, keys, regex, handler });
    return this;
  }

  otherwise(handler: Handler): this {
    this.fallback = handler;
    return this;
  }

  match(path: string): { route: Route; params: Params } | null {
    for (const route of this.routes) {
      const found = route.regex.exec(path);
      if (found) {
        const params: Params = {};
        route.keys.forEach((key, index) => {
          params[key] = decodeURIComponent(found[index + 1]);
        });
        return { route, params };
      }
    }
    return null;
  }

  navigate(url: string): boolean {
    console.log("navigate", url);
    const [path, search = ""] = url.split("?");
    const query = new URLSearchParams(search);
    const found = this.match(path);
    console.log("found", found);
    if (found === null) {
      this.fallback({}, query);
      return false;
    }
    found.route.handler(found.params, query);
    console.log("done");
    return true;
  }
}

export function buildUrl(pattern: string, params: Params, query: Params = {}): string {
  const path = pattern.replace(/:(\w+)/g, (_, key: string) => {
    const value = params[key];
    if (value === undefined) {
      throw new Error(`parameter ${key} is missing`);
    }
    return encodeURIComponent(value);
  });
  const search = new URLSearchParams(query).toString();
  return search ? `${path}?${search}` : path;
}

export function parseRange(text: string): [number, number] | null {
  const found = /^(\d+)-(\d+)$/.exec(text);
  if (!found) {
    return null;
  }
  const first = Number(found[1]);
  const last = Number(found[2]);
  return first <= last ? [first, last] : null;
}

export function debounce(call: () => void, wait: number): () => void {
  var timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    var pending = timer !== undefined;
    if (pending) {
      clearTimeout(timer);
    }
    timer = setTimeout(call, wait);
  };
}
