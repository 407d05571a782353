/* Attention on projected Q, K, V in C, and what mha-parity needs to ask it. No dependency.

   cc -O2 -o attention attention.c -lm
   mha-parity check --exec ./attention
   mha-parity check --exec "./attention wrong"      scale 1/sqrt(d_model): the report names it
*/
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* query (N, L, H D), key (N, S, H D), value (N, S, H D); mask (L, S), nonzero hides, or NULL. */
static void attention(const double *query, const double *key, const double *value,
                      const unsigned char *mask, int causal, double scale, long N, long L, long S,
                      long E, long H, double *output)
{
    long D = H ? E / H : 0;
    double *p = malloc((S + 1) * sizeof *p);
    for (long n = 0; n < N; n++)
        for (long h = 0; h < H; h++)
            for (long i = 0; i < L; i++) {
                const double *q = query + (n * L + i) * E + h * D;
                double *out = output + (n * L + i) * E + h * D, most = -INFINITY, sum = 0;
                for (long j = 0; j < S; j++) {
                    const double *k = key + (n * S + j) * E + h * D;
                    p[j] = 0;
                    for (long d = 0; d < D; d++)
                        p[j] += q[d] * k[d];
                    p[j] *= scale;
                    if ((causal && j > i) || (mask && mask[i * S + j]))
                        p[j] = -INFINITY;
                    if (p[j] > most)
                        most = p[j];
                }
                for (long j = 0; j < S; j++)
                    sum += p[j] = exp(p[j] - most);
                for (long d = 0; d < D; d++) {
                    out[d] = 0;
                    for (long j = 0; j < S; j++)
                        out[d] += p[j] / sum * value[(n * S + j) * E + h * D + d];
                }
            }
    free(p);
}

typedef struct { int dtype; long shape[3]; char *data; } Array;  /* dtype 8: F64, 4: F32, 1: BOOL */

static void send(const char *header, const char *data, uint64_t size)
{
    uint64_t length = strlen(header), whole = 8 + length + size;  /* little-endian machines */
    fwrite(&whole, 8, 1, stdout);
    fwrite(&length, 8, 1, stdout);
    fwrite(header, 1, length, stdout);
    fwrite(data, 1, size, stdout);
    fflush(stdout);
}

static void refuse(const char *sentence)
{
    char header[256];
    snprintf(header, sizeof header,
             "{\"__metadata__\":{\"protocol\":\"mha-parity-exec/1\",\"error\":\"%s\"}}", sentence);
    send(header, "", 0);
}

/* The header has no spaces, and dtype, shape and data_offsets in this order: strstr will do. */
static int find(char *header, char *data, const char *name, Array *array)
{
    char word[64], dtype[8];
    long a = 1, b = 1, c = 1, from;
    snprintf(word, sizeof word, "\"%s\":{\"dtype\":\"", name);
    char *at = strstr(header, word);
    if (!at)
        return 0;
    at += strlen(word);
    const char *three = "%7[^\"]\",\"shape\":[%ld,%ld,%ld],\"data_offsets\":[%ld";
    const char *two = "%7[^\"]\",\"shape\":[%ld,%ld],\"data_offsets\":[%ld";
    if (sscanf(at, three, dtype, &a, &b, &c, &from) != 5) {
        c = 1;
        if (sscanf(at, two, dtype, &a, &b, &from) != 4)
            return 0;
    }
    array->dtype = !strcmp(dtype, "F64") ? 8 : !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "BOOL");
    array->shape[0] = a, array->shape[1] = b, array->shape[2] = c, array->data = data + from;
    return array->dtype;
}

static const char *option(char *header, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, "\"%s\":\"", name);
    char *at = strstr(header, word);
    return at ? at + strlen(word) : "";
}

static double *doubles(Array a)
{
    long count = a.shape[0] * a.shape[1] * a.shape[2];
    double *wide = malloc((count + 1) * sizeof *wide);
    for (long i = 0; i < count; i++)
        wide[i] = a.dtype == 8 ? ((double *)a.data)[i] : ((float *)a.data)[i];
    return wide;
}

static void answer(char *header, char *data, int wrong)
{
    Array q, k, v, mask = {0};
    if (!find(header, data, "query", &q) || !find(header, data, "key", &k) ||
        !find(header, data, "value", &v) || q.dtype == 1 || k.shape[1] != v.shape[1]) {
        refuse("query, key and value should be F64 or F32, and keys as many as values");
        return;
    }
    find(header, data, "attn_mask", &mask);
    long N = q.shape[0], L = q.shape[1], E = q.shape[2], H = atol(option(header, "num_heads"));
    double scale = wrong ? 1 / sqrt(E) : atof(option(header, "scale"));
    double *wide[] = {doubles(q), doubles(k), doubles(v), malloc((N * L * E + 1) * sizeof(double))};
    attention(wide[0], wide[1], wide[2], (unsigned char *)mask.data,
              *option(header, "is_causal") == 'y', scale, N, L, k.shape[1], E, H, wide[3]);
    if (q.dtype == 4)
        for (long i = 0; i < N * L * E; i++)
            ((float *)wide[3])[i] = (float)wide[3][i];
    char reply[256];
    snprintf(reply, sizeof reply,
             "{\"__metadata__\":{\"protocol\":\"mha-parity-exec/1\"},\"output\":{\"dtype\":\"%s\","
             "\"shape\":[%ld,%ld,%ld],\"data_offsets\":[0,%ld]}}",
             q.dtype == 8 ? "F64" : "F32", N, L, E, N * L * E * q.dtype);
    send(reply, (char *)wide[3], N * L * E * q.dtype);
    free(wide[0]), free(wide[1]), free(wide[2]), free(wide[3]);
}

int main(int count, char **words)
{
    int wrong = count > 1 && !strcmp(words[1], "wrong");
    uint64_t size, length;
    while (fread(&size, 8, 1, stdin) == 1 && fread(&length, 8, 1, stdin) == 1) {
        char *header = calloc(1, length + 1), *data = malloc(size - 8 - length + 1);
        if (fread(header, 1, length, stdin) != length ||
            fread(data, 1, size - 8 - length, stdin) != size - 8 - length)
            return 1;
        if (*option(header, "request") == 'o')
            send("{\"__metadata__\":{\"protocol\":\"mha-parity-exec/1\",\"form\":\"qkv\",\"dtype\":"
                 "\"float64,float32\",\"inputs\":\"self,cross,distinct\",\"attn\":\"none,bool2d,"
                 "causal\",\"scale\":\"default,given\"}}", "", 0);
        else
            answer(header, data, wrong);
        free(header), free(data);
    }
    return 0;
}
