// Random numbers by key and index, bit for bit those of fedns.numerics.rng, and the columns of sketches made of them.

#define NO_SKETCH -1
#define SRHT 0
#define SJLT 1
#define ROW_SAMPLING 2
#define GAUSSIAN 4
#define RADEMACHER 5

typedef unsigned long long word;

__device__ word mix(word x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

__device__ word random_bits(word key0, word key1, word index) {
    return mix(mix(key0 + index * 0x9E3779B97F4A7C15ull) ^ key1);
}

// A uniform number among 0, ..., j.
__device__ long long below(word key0, word key1, long long j) {
    return (long long)((double)(random_bits(key0, key1, j) >> 11) * (1.0 / 9007199254740992.0) * (double)(j + 1));
}

struct Piece {
    long long client, first, last, begin;  // rows first:last of a client whose rows begin at `begin`
};

__device__ Piece piece_of(const long long *pieces, long long number) {
    const long long *p = pieces + 4 * number;
    return {p[0], p[1], p[2], p[3]};
}

struct Draw {
    word key0, key1;
    const long long *chosen;  // the rows of the Hadamard matrix, for SRHT
    long long size;           // rows of this client's sketch; its columns are padded with zeros
};

__device__ Draw draw_of(const word *keys, const long long *chosen, const long long *sizes, long long client, int most) {
    if (keys == nullptr) return {0, 0, nullptr, 0};
    return {keys[2 * client], keys[2 * client + 1], chosen + client * most, sizes[client]};
}

// entries[r] = root S[r, position] for r below `most`.
__device__ void sketch_column(int kind, Draw draw, long long position, int most, double root, double *entries) {
    const double scaled = root * sqrt(1.0 / (double)draw.size);
    if (kind == SRHT) {
        const word bits = random_bits(draw.key0, draw.key1, position >> 6) >> (position & 63);
        const long long value = __double_as_longlong(scaled) ^ (long long)(bits << 63);
        for (int r = 0; r < most; r++) {
            const word odd = __popc((unsigned)draw.chosen[r] & (unsigned)position);  // no client has 2^32 rows
            entries[r] = r >= draw.size ? 0.0 : __longlong_as_double(value ^ (long long)(odd << 63));
        }
    } else if (kind == RADEMACHER) {
        const long long words = (draw.size + 63) / 64;
        word bits = 0;
        for (int r = 0; r < most; r++) {
            if (r % 64 == 0) bits = random_bits(draw.key0, draw.key1, position * words + r / 64);
            entries[r] = r >= draw.size ? 0.0 : bits >> (r % 64) & 1 ? -scaled : scaled;
        }
    } else if (kind == GAUSSIAN) {
        const long long pairs = (draw.size + 1) / 2;
        const double unit = 1.0 / 9007199254740992.0;
        for (int r = 0; r < most; r += 2) {
            const word index = 2 * (position * pairs + r / 2);
            const double u = ((double)(random_bits(draw.key0, draw.key1, index) >> 11) + 1.0) * unit;
            const double turn = (double)(random_bits(draw.key0, draw.key1, index + 1) >> 11) * unit;
            const double radius = scaled * sqrt(-2.0 * log(u));
            entries[r] = r >= draw.size ? 0.0 : radius * cospi(2.0 * turn);
            if (r + 1 < most) entries[r + 1] = r + 1 >= draw.size ? 0.0 : radius * sinpi(2.0 * turn);
        }
    }
}

// Floyd's algorithm, a thread for each client: sizes[client] distinct numbers below populations[client], increasing. They
// are put in order in shared memory, `most` words for each thread.
extern "C" __global__ void sample_without_replacement(const word *keys, const long long *populations, const long long *sizes,
                                                      int clients, int most, long long *chosen) {
    const int client = blockIdx.x * blockDim.x + threadIdx.x;
    extern __shared__ long long lists[];
    if (client >= clients) return;
    long long *own = lists + (long long)threadIdx.x * most;
    const long long count = sizes[client], population = populations[client];
    for (long long drawn = 0; drawn < count; drawn++) {
        const long long j = population - count + drawn;
        long long t = below(keys[2 * client], ~keys[2 * client + 1], j), place = drawn;
        while (place > 0 && own[place - 1] > t) place--;
        if (place > 0 && own[place - 1] == t) t = j, place = drawn;  // j is above all earlier numbers
        for (long long r = drawn; r > place; r--) own[r] = own[r - 1];
        own[place] = t;
    }
    for (long long r = 0; r < count; r++) chosen[(long long)client * most + r] = own[r];
}

// The sums of pieces low:high are known: one number of a client's, added to what earlier pieces gave. A client's pieces
// are added up in order, whether they come at once or in turn.
__device__ double with_pieces(double earlier, const double *partial, const long long *bounds, long long client,
                              long long low, long long high, long long width, long long entry) {
    const long long begin = max(bounds[client], low), end = min(bounds[client + 1], high);
    double total = bounds[client] < low ? earlier : 0.0;
#pragma unroll 8
    for (long long p = begin; p < end; p++) total += partial[(p - low) * width + entry];
    return total;
}

// Sums of clients from `first` on whose pieces have a value, the gradient and the sketch: they are written as all sketches,
// all gradients, all values.
extern "C" __global__ void merge_sums(const double *partial, const long long *bounds, long long low, long long high,
                                      long long first, long long count, long long clients, int features, int size,
                                      double *out) {
    const long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x, width = 1 + (1 + size) * (long long)features;
    if (e >= count * width) return;
    const long long client = first + e / width, entry = e % width, sketches = clients * size * features;
    double *own = out + client * size * features + entry - 1 - features;
    if (entry == 0)
        own = out + sketches + clients * features + client;
    else if (entry <= features)
        own = out + sketches + client * features + entry - 1;
    *own = with_pieces(*own, partial, bounds, client, low, high, width, entry);
}

// out[client, e] with the pieces' numbers at places[e], or at e: a thread for each number of clients from `first` on.
extern "C" __global__ void add_pieces(const double *partial, const long long *bounds, long long low, long long high,
                                      long long first, long long clients, long long width, const long long *places,
                                      long long kept, double *out) {
    const long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (e >= clients * kept) return;
    const long long client = first + e / kept, entry = e % kept;
    double *own = out + client * kept + entry;
    *own = with_pieces(*own, partial, bounds, client, low, high, width, places == nullptr ? entry : places[entry]);
}

// table[row, 0] = slope, table[row, 1 + r] = root S[r, row's position]: a thread for each row of each piece.
extern "C" __global__ void coefficients(int kind, int nonzeros, const double *slope, const double *root,
                                        const long long *pieces, const word *keys, const long long *chosen,
                                        const long long *sizes, int most, int length, double *table) {
    const Piece piece = piece_of(pieces, blockIdx.x);
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        const long long at = (long long)blockIdx.x * length + i;
        double *own = table + at * (1 + most);
        own[0] = slope[at];
        for (int r = 0; r < most; r++) own[1 + r] = 0.0;
        if (piece.first + i >= piece.last) continue;
        const long long position = piece.first + i - piece.begin;
        const Draw draw = draw_of(keys, chosen, sizes, piece.client, most);
        if (kind != SJLT) {
            sketch_column(kind, draw, position, most, root[at], own + 1);
            continue;
        }
        for (int q = 0; q < nonzeros; q++) {  // Floyd again: a repeat of an earlier draw becomes the bound less 1
            const word bits = random_bits(draw.key0, draw.key1, position * nonzeros + q);
            const long long bound = draw.size - nonzeros + q + 1;
            long long bucket = (long long)(((bits >> 32) * (word)bound) >> 32);
            if (own[1 + bucket] != 0.0) bucket = bound - 1;
            // A root of 0 marks nothing, and adds nothing wherever it goes.
            own[1 + bucket] = (bits & 1 ? -1.0 : 1.0) * (sqrt(1.0 / nonzeros) * root[at]);
        }
    }
}
